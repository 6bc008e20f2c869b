"""What two writers gave away twice, by the order in which the watch delivered their allocations (decision per claim)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, holdings_of
from dra_extender.model.device import CounterConsumption
from dra_extender.model.node_selector import only_node
from dra_extender.model.resource_claim import claim_from
from dra_extender.scheduling.binding.conflicts import AllocationConflict, find_conflict, find_conflicting_claims
from hypothesis import given
from hypothesis import strategies as st

from tests.support.model.reading import plain

DRIVER, POOL = "d.example.com", "p"
UNITS = 10


def slices(ledger: Ledger, devices: list[dict[str, Any]], capacity: str | None = None) -> None:
    """One counter set `s` of UNITS units, and these devices."""
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 2}
    common = {"driver": DRIVER, "pool": pool, "nodeName": "n"}
    if capacity is not None:
        for each in devices:
            each["allowMultipleAllocations"] = True
            each["capacity"] = {"memory": {"value": capacity}}
    counters = [{"name": "s", "counters": {"units": {"value": str(UNITS)}}}]
    for name, rest in (("a", {"sharedCounters": counters}), ("b", {"devices": devices})):
        raw = {"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": {**common, **rest}}
        sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))


def partition(name: str, units: int, *groups: str) -> dict[str, Any]:
    consumed: dict[str, Any] = {"counterSet": "s", "counters": {"units": {"value": str(units)}}}
    if groups:
        consumed["compatibilityGroups"] = list(groups)
    return {"name": name, "consumesCounters": [consumed]}


def stored(
    name: str,
    version: int,
    device: str,
    *,
    ours: tuple[int, tuple[str, ...]] | None = None,
    node: str = "",
    **result: Any,
) -> bytes:
    """A claim with this device, perhaps for a node; `ours`: with our snapshot of (units, groups) that it draws."""
    results = [{"request": "r", "driver": DRIVER, "pool": POOL, "device": device, **result}]
    raw: dict[str, Any] = {
        "metadata": {"name": name, "namespace": "x", "uid": name, "resourceVersion": str(version)},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    if node:
        raw["status"]["allocation"]["nodeSelector"] = plain(only_node(node))
    if ours is not None:
        allocation = claim_from(raw).status.allocation
        assert isinstance(allocation, AllocationResult)
        units, groups = ours
        drawn = CounterConsumption(counter_set="s", counters=(("units", units * 10**9),), compatibility_groups=groups)
        (holding,) = holdings_of(claim_from(raw))
        holding = msgspec.structs.replace(holding, consumption=(drawn,) if units or groups else ())
        raw["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, (holding,))}
    return msgspec.json.encode(raw)


def delivered(ledger: Ledger, *claims: bytes) -> Mapping[str, ClaimRecord]:
    for each in claims:
        ledger.claim_seen(each)
    return {each.claim.metadata.name: each for each in ledger.claims.records()}


def judged(ledger: Ledger, record: ClaimRecord) -> AllocationConflict | None:
    return find_conflict(record, ledger.claims, ledger.slices)


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    slices(ledger, [partition("g0", 6), partition("g1", 6), partition("m0", 2, "mig"), partition("v0", 2, "vgpu")])
    return ledger


def test_of_two_allocations_of_ours_the_one_delivered_later_yields(ledger: Ledger) -> None:
    found = delivered(ledger, stored("first", 5, "g0", ours=(6, ())), stored("second", 6, "g0", ours=(6, ())))
    assert judged(ledger, found["first"]) is None
    assert judged(ledger, found["second"]) == AllocationConflict("device", f"{DRIVER}/{POOL}/g0", "own")


@pytest.mark.parametrize("foreign", [True, False])
def test_counters_that_both_overdraw(ledger: Ledger, *, foreign: bool) -> None:
    """What a foreign allocation draws is what the slice says now."""
    other = stored("other", 5, "g0", ours=None if foreign else (6, ()))
    found = delivered(ledger, other, stored("ours", 6, "g1", ours=(6, ())))
    assert judged(ledger, found["ours"]) == AllocationConflict(
        "counters", f"{DRIVER}/{POOL}/s", "foreign" if foreign else "own"
    )


@pytest.mark.parametrize("groups", [("vgpu",), ()])
def test_groups_in_conflict(ledger: Ledger, groups: tuple[str, ...]) -> None:
    """Also beside a device without groups."""
    found = delivered(ledger, stored("foreign", 5, "m0"), stored("ours", 6, "v0", ours=(2, groups)))
    assert judged(ledger, found["ours"]) == AllocationConflict("groups", f"{DRIVER}/{POOL}/s")


def test_what_goes_together_is_no_overlap(ledger: Ledger) -> None:
    found = delivered(
        ledger,
        stored("a", 5, "m0"),
        stored("b", 6, "m1", ours=(2, ("mig", "vgpu"))),
        stored("c", 7, "other", ours=(0, ())),
    )
    assert [judged(ledger, each) for each in found.values()] == [None, None, None]


@pytest.mark.parametrize(("amount", "kind"), [("5Gi", None), ("6Gi", "capacity")])
def test_shares_that_together_take_more_than_there_is(amount: str, kind: str | None) -> None:
    ledger = Ledger()
    slices(ledger, [{"name": "g0"}], capacity="8Gi")
    share: dict[str, Any] = {"consumedCapacity": {"memory": "3Gi"}, "shareID": "s-1"}
    other: dict[str, Any] = {"consumedCapacity": {"memory": amount}, "shareID": "s-2"}
    found = delivered(ledger, stored("foreign", 5, "g0", **other), stored("ours", 6, "g0", ours=(0, ()), **share))
    clash = judged(ledger, found["ours"])
    assert (None if clash is None else clash.kind) == kind


@pytest.mark.parametrize(
    ("other", "writer"),
    [
        pytest.param({"node": "n1"}, "foreign", id="foreign-elsewhere"),
        pytest.param({"node": "n1", "ours": (0, ())}, "own", id="ours-elsewhere"),
        pytest.param({"node": "n2"}, None, id="foreign-same-node"),
        pytest.param({"node": "n1", "adminAccess": True}, None, id="admin-access"),
    ],
)
def test_of_two_schedulers_that_bind_a_device_to_two_nodes_ours_yields(
    other: dict[str, Any], writer: str | None
) -> None:
    ledger = Ledger()
    pool = {"name": POOL, "generation": 1, "resourceSliceCount": 1}
    device = {"name": "f0", "allowMultipleAllocations": True, "bindsToNode": True}
    spec = {"driver": DRIVER, "pool": pool, "allNodes": True, "devices": [device]}
    raw = {"metadata": {"name": "fabric", "uid": "fabric", "resourceVersion": "1"}, "spec": spec}
    sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))
    records = delivered(
        ledger,
        stored("other", 5, "f0", shareID="s-1", **other),
        stored("ours", 6, "f0", ours=(0, ()), node="n2", shareID="s-2"),
    )
    found = judged(ledger, records["ours"])
    assert (None if found is None else (found.kind, found.writer)) == (writer and ("node", writer))
    assert found is None or found.text == f"device {DRIVER}/{POOL}/f0 was bound to another node first"


def test_admin_access_takes_nothing(ledger: Ledger) -> None:
    found = delivered(ledger, stored("admin", 5, "g0", adminAccess=True), stored("ours", 6, "g0", ours=(6, ())))
    assert judged(ledger, found["ours"]) is None


def test_later_writes_to_a_claim_do_not_make_its_allocation_younger(ledger: Ledger) -> None:
    """Its driver may report a condition, for example."""
    first = stored("first", 5, "g0", ours=(6, ()))
    touched = first.replace(b'"resourceVersion":"5"', b'"resourceVersion":"9"')
    found = delivered(ledger, first, stored("second", 6, "g0", ours=(6, ())), touched)
    assert judged(ledger, found["first"]) is None
    assert judged(ledger, found["second"]) is not None


@given(st.permutations(range(5)), st.sets(st.integers(0, 4)))
def test_of_any_number_of_rivals_the_first_of_ours_stays_and_all_yield_to_foreign_ones(
    order: list[int], foreign: set[int]
) -> None:
    ledger = Ledger()
    slices(ledger, [partition("g0", 1)])
    records = delivered(
        ledger,
        *(
            stored(str(each), 10 + place, "g0", ours=None if each in foreign else (1, ()))
            for place, each in enumerate(order)
        ),
    )
    stay = [each for each in order if each not in foreign and judged(ledger, records[str(each)]) is None]
    ours = [each for each in order if each not in foreign]
    assert stay == ([] if foreign else ours[:1])


def test_both_sides_of_an_overlap_are_named_afterwards(ledger: Ledger) -> None:
    found = delivered(
        ledger, stored("ours", 5, "g0", ours=(6, ())), stored("else", 6, "x0"), stored("foreign", 7, "g0")
    )
    clash = find_conflicting_claims(found["foreign"], ledger.claims, ledger.slices)
    assert clash is not None
    assert clash[0] == AllocationConflict("device", f"{DRIVER}/{POOL}/g0")
    assert [each.claim.metadata.name for each in clash[1]] == ["ours"]
