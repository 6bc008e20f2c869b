"""The account of a node names for each request every reason that keeps devices away, with the number of devices."""

from collections.abc import Sequence
from typing import Any

from dra_extender.allocator.explain.device_diagnosis import RequestSurvey, diagnose_devices, survey
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation import DeviceHolding
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    Held,
    Json,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    either,
    every,
    exactly,
    held,
    pools_of,
    slice_of,
    typed,
)


def surveyed(
    slices: Sequence[ResourceSlice],
    *claims: ResourceClaim,
    usage: Sequence[DeviceHolding] = (),
    features: Features | None = None,
) -> tuple[RequestSurvey, ...]:
    return survey(demand_of(*claims, features=features), NODE, pools_of(slices, NODE, features), Held(*usage))


def counts(found: RequestSurvey) -> dict[Code, int]:
    return {each.code: each.devices for each in found.refused}


def text(found: RequestSurvey, code: Code) -> list[str]:
    return [each.detail for each in found.refused if each.code is code]


def test_each_reason_is_counted() -> None:
    slices = [
        counters_of(set=4),
        slice_of(
            consuming("held", "a", amount=2),
            consuming("grouped-1", "b"),
            consuming("grouped-2", "c"),
            consuming("big", "a", amount=3),
            consuming("fits", "a", amount=1),
            {"name": "bad", "taints": [{"key": "broken", "effect": "NoExecute"}]},
            typed("other", "x"),
            count=2,
        ),
    ]
    selector = f'!(has(device.attributes["{DRIVER}"].type) && device.attributes["{DRIVER}"].type == "x")'
    (found,) = surveyed(slices, claim_of(exactly(expression=selector)), usage=[held("held")])
    assert (found.claim, found.request, found.wanted, found.seen, found.free) == ("c0", "r", 1, 7, 1)
    assert counts(found) == {
        Code.GROUPS: 2,
        Code.COUNTERS: 1,
        Code.TAINTED: 1,
        Code.IN_USE: 1,
        Code.NO_MATCH: 1,
    }
    assert found.refused[0].code is Code.GROUPS
    assert text(found, Code.GROUPS) == [
        "grouped-1 declares [b] on counter set set; held (in use) has [a]",
    ]
    assert text(found, Code.COUNTERS) == ["big needs 3 of c in counter set set, 2 remain"]
    assert text(found, Code.TAINTED) == ["bad has taint broken:NoExecute"]


def test_selectors_are_explained_with_both_values_for_each_kind_of_device() -> None:
    slices = [slice_of(typed("a", "A100"), typed("b", "A100"), typed("c", "L4"))]
    expression = f'device.attributes["{DRIVER}"].type == "H100"'
    (found,) = surveyed(slices, claim_of(exactly(expression=expression)))
    assert [(each.code, each.devices, each.example) for each in found.refused] == [
        (Code.NO_MATCH, 2, "a"),
        (Code.NO_MATCH, 1, "c"),
    ]
    assert text(found, Code.NO_MATCH) == [
        f'device.attributes["{DRIVER}"].type is "A100", wanted "H100"',
        f'device.attributes["{DRIVER}"].type is "L4", wanted "H100"',
    ]


def test_selector_that_fails_names_the_attribute() -> None:
    (found,) = surveyed(
        [slice_of("bare")], claim_of(exactly(expression=f'device.attributes["{DRIVER}"].type == "H100"'))
    )
    assert counts(found) == {Code.SELECTOR_FAILED: 1}
    assert "type" in text(found, Code.SELECTOR_FAILED)[0]


def test_alternatives_are_surveyed_one_by_one() -> None:
    found = surveyed([slice_of("a", "b")], claim_of(either(exactly(expression="false"), exactly(2))), usage=[held("a")])
    assert [(each.request, each.wanted, each.free) for each in found] == [("r/a0", 1, 0), ("r/a1", 2, 1)]


def test_capacity_says_amounts() -> None:
    device: dict[str, Any] = {"name": "a", "allowMultipleAllocations": True, "capacity": {"memory": {"value": "4Gi"}}}
    request = exactly(capacity={"requests": {"memory": "3Gi"}})
    taken = held("a", share_id="s", consumed_capacity=(("memory", 2 * 2**30 * 10**9),))
    (found,) = surveyed([slice_of(device)], claim_of(request), usage=[taken])
    assert counts(found) == {Code.CAPACITY: 1}
    assert text(found, Code.CAPACITY) == ["a has 2Gi of memory left, 3Gi would be needed"]


def test_devices_of_other_nodes_and_of_incomplete_pools_are_counted() -> None:
    elsewhere = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "region", "operator": "In", "values": ["east"]}]}]}
    devices: list[Json] = [{"name": "here", "allNodes": True}, {"name": "there", "nodeSelector": elsewhere}]
    slices = [
        slice_of(*devices, perDeviceNodeSelection=True),
        slice_of("x", "y", pool="half", name="half", count=2),
    ]
    (found,) = surveyed(slices, claim_of(every(expression="true")))
    assert (found.seen, found.free, found.wanted) == (4, 1, -1)
    assert counts(found) == {Code.OTHER_NODE: 1, Code.POOL_INCOMPLETE: 2}
    assert text(found, Code.POOL_INCOMPLETE) == [f"pool {DRIVER}/half has 1 of 2 slices"]


@settings(deadline=None)
@given(
    kinds=st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=6),
    taken=st.sets(st.integers(0, 5)),
    wanted=st.sampled_from(["A", "B"]),
)
def test_seen_is_the_sum_of_free_and_refused(kinds: list[str], taken: set[int], wanted: str) -> None:
    slices = [slice_of(*(typed(f"d{index}", kind) for index, kind in enumerate(kinds)))]
    usage = [held(f"d{index}") for index in taken if index < len(kinds)]
    claim = claim_of(exactly(expression=f'device.attributes["{DRIVER}"].type == "{wanted}"'))
    (found,) = surveyed(slices, claim, usage=usage)
    free = sum(kind == wanted and index not in taken for index, kind in enumerate(kinds))
    assert (found.seen, found.free) == (len(kinds), free)
    assert found.seen == found.free + sum(each.devices for each in found.refused)
    assert counts(found).get(Code.IN_USE, 0) == sum(
        kind == wanted and index in taken for index, kind in enumerate(kinds)
    )


def test_words_about_a_selector_are_cut_however_long_its_names_are() -> None:
    expression = "[1].all(a," * 50 + f'device.driver == "{"z" * 8_000}"' + ")" * 50
    (found,) = surveyed([slice_of("d")], claim_of(exactly(expression=expression)))
    assert found.refused[0].code is Code.NO_MATCH
    assert 0 < len(found.refused[0].detail) <= 500


def test_a_tainted_device_on_which_a_derived_attribute_fails_is_told_with_both() -> None:
    name = f"{DRIVER}/big"
    derived = [{"name": name, "expression": f'device.attributes["{DRIVER}"].size > 1'}]
    wanted = claim_of(exactly(2, derivedAttributes=derived), constraints=[{"matchAttribute": name}])
    slices = [slice_of({"name": "a", "taints": [{"key": "k", "effect": "NoSchedule"}]})]
    (device,) = diagnose_devices(demand_of(wanted), NODE, pools_of(slices), Held(), ("c0", "r"))
    assert device.code is Code.TAINTED
    assert device.also.startswith("derived attribute failed on a device: gpu.example.com/big: ")
