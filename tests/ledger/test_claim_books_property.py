"""What claims take is what the last objects say, whatever came late, twice, broken, under another UID, or looked like a guard."""

from collections import Counter
from contextlib import suppress
from typing import Any

from dra_extender.ledger.guard_index import GUARD_PREFIX
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.templated_claim import ENTRY_ANNOTATION
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.ledger.ledger_events import encode, holdings_by_device, raw_claim

OURS = "dra-extender"
KEYS = (("default", "c1"), ("default", f"{GUARD_PREFIX}x"), (OURS, "c1"), (OURS, f"{GUARD_PREFIX}x"))
FORMS = ("whole", "labelled", "bad spec", "bad status", "bad both", "long")
DEVICES = (None, (("p1", "d1"),), (("p1", "d2"), ("p2", "d1")))
EVENT = st.one_of(
    st.tuples(st.just("watch"), st.sampled_from(KEYS), st.sampled_from(FORMS), st.sampled_from(DEVICES), st.booleans()),
    st.tuples(st.just("again"), st.sampled_from(KEYS)),
    st.tuples(st.just("late answer"), st.integers(0, 20)),
    st.tuples(st.just("answer"), st.sampled_from(KEYS), st.sampled_from(DEVICES)),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("take"), st.sampled_from(KEYS)),
    st.tuples(st.just("settle"), st.sampled_from(KEYS)),
)
TAKEN = DeviceHolding(driver="gpu.example.com", pool="p1", device="d3")


def a_claim(key: tuple[str, str], uid: str, version: int, form: str, devices: Any) -> dict[str, Any]:
    raw = raw_claim(key[1], version, uid=uid, devices=devices, consumers=("a", "b")[: version % 3])
    raw["metadata"]["namespace"] = key[0]
    if form != "whole":
        raw["metadata"]["labels"] = {"mine": f"{GUARD_PREFIX}x"}
    if form in ("bad spec", "bad both"):
        raw["spec"] = {"devices": 7}
    if form in ("bad status", "bad both"):
        raw["status"]["devices"] = 7
    if form == "long":
        raw["metadata"]["annotations"] = {"long": "x" * 9000}
    return raw


class Play:
    """One sequence of events, and what the API server has."""

    def __init__(self, limit: int) -> None:
        self.ledger = Ledger(limit)
        self.ledger.guards.namespace = OURS
        self.stored: dict[tuple[str, str], dict[str, Any]] = {}
        self.past: list[bytes] = []
        self.taken: set[str] = set()
        self.version = 0

    def do(self, event: tuple[Any, ...]) -> None:
        self.version += 1
        match event:
            case ("watch", key, form, devices, anew):
                known = self.stored.get(key)
                uid = f"u{self.version}" if known is None or anew else known["metadata"]["uid"]
                if known is not None and anew:
                    self.deleted(key, self.stored.pop(key))
                raw = a_claim(key, uid, self.version, form, devices)
                if known is not None and not anew:
                    # No API server lets a spec change.
                    raw["spec"] = known["spec"]
                self.watched(key, raw)
            case ("again", key) if key in self.stored:
                self.watched(key, self.stored[key])
            case ("late answer", place) if self.past:
                with suppress(ModelError):
                    self.ledger.assume_written(self.past[place % len(self.past)])
            case ("answer", key, devices) if key in self.stored and not key[1].startswith(GUARD_PREFIX):
                raw = a_claim(key, self.stored[key]["metadata"]["uid"], self.version, "whole", devices)
                raw["spec"] = self.stored[key]["spec"]
                with suppress(ModelError):
                    self.ledger.assume_written(encode(raw))
                    self.stored[key] = raw
                    self.past.append(encode(raw))
            case ("delete", key) if key in self.stored:
                self.deleted(key, self.stored.pop(key))
            case ("take", key) if (record := self.ledger.claims.by_key(*key)) is not None:
                if record.claim.status.allocation is None and record.pending is None:
                    placement = ClaimPlacement(allocation=AllocationResult(), holdings=(TAKEN,))
                    self.ledger.begin_pending(record.claim.metadata.uid, placement)
                    self.taken.add(record.claim.metadata.uid)
            case ("settle", key) if (record := self.ledger.claims.by_key(*key)) is not None:
                self.ledger.end_pending(record.claim.metadata.uid)
            case _:
                pass

    def watched(self, key: tuple[str, str], raw: dict[str, Any]) -> None:
        with suppress(ModelError):
            self.ledger.claim_seen(encode(raw))
        self.stored[key] = raw
        if not self.ledger.guards.has(*key):
            self.past.append(encode(raw))

    def deleted(self, key: tuple[str, str], raw: dict[str, Any]) -> None:
        self.ledger.claim_gone(*key, raw["metadata"]["uid"])


def devices_of(raw: dict[str, Any]) -> Counter[tuple[str, str]]:
    allocation = raw["status"].get("allocation")
    results = [] if allocation is None else allocation["devices"]["results"]
    return Counter((each["pool"], each["device"]) for each in results)


@given(st.lists(EVENT, max_size=40), st.sampled_from((0, 3000)))
@examples(80)
def test_books_are_what_the_stored_claims_say(events: list[tuple[Any, ...]], limit: int) -> None:
    play = Play(limit)
    for event in events:
        play.do(event)
    ledger = play.ledger
    for uid in play.taken:
        ledger.end_pending(uid)
    expected: Counter[tuple[str, str]] = Counter()
    for (namespace, name), raw in play.stored.items():
        if namespace != OURS or not name.startswith(GUARD_PREFIX):
            expected += devices_of(raw)
    counted = Counter(
        {
            (pool, device): sum(found.values())
            for (_, pool), devices in holdings_by_device(ledger.claims.usage).items()
            for device, found in devices.items()
        }
    )
    assert counted == expected
    assert ledger.claims.kept.total == sum(record.size for record in ledger.claims.records())
    assert ledger.claims.kept.without_spec == sum(not record.raw for record in ledger.claims.records())
    assert len(ledger.guards) <= 1
    for record in list(ledger.claims.records()):
        ledger.claim_gone(*record.claim.metadata.key, record.claim.metadata.uid)
    assert not holdings_by_device(ledger.claims.usage)
    assert (ledger.claims.kept.total, ledger.claims.kept.without_spec) == (0, 0)
    assert ledger.claims.of_consumer("a") == ledger.claims.of_consumer("b") == ()


def test_a_claim_that_names_another_owner_is_not_found_for_the_one_before() -> None:
    """Whoever may change the claim may change its owner."""
    ledger = Ledger()
    for version, owner in enumerate(("one", "two"), 1):
        raw = raw_claim("c", version)
        reference = {"apiVersion": "v1", "kind": "Pod", "name": owner, "uid": owner, "controller": True}
        raw["metadata"] |= {"ownerReferences": [reference], "annotations": {ENTRY_ANNOTATION: "gpu"}}
        sinks_of(ledger)["resourceclaims"].changed(encode(raw))
    found = {owner: len(list(ledger.claims.made_for("default", owner, "gpu"))) for owner in ("one", "two")}
    assert found == {"one": 0, "two": 1}
