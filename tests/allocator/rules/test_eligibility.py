"""Device taints and tolerations (KEP-5055)."""

import dataclasses

import pytest
from dra_extender.allocator.rules.eligibility import briefly_tolerated, tolerates, untolerated
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.model.allocation import DeviceToleration, Placement
from dra_extender.model.device import DeviceTaint

from tests.support.allocator.building import ask, claim_of, every, exactly, picks, reasons, slice_of
from tests.support.model.reading import plain

TAINT = DeviceTaint(key="example.com/broken", value="yes", effect="NoSchedule")


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        (DeviceToleration(operator="Exists"), True),
        (DeviceToleration(operator="Exists", key="example.com/broken"), True),
        (DeviceToleration(operator="Exists", key="example.com/other"), False),
        (DeviceToleration(operator="Exists", effect="NoExecute"), False),
        (DeviceToleration(operator="Exists", effect="NoSchedule"), True),
        (DeviceToleration(operator="Equal", key="example.com/broken", value="yes"), True),
        (DeviceToleration(operator="Equal", key="example.com/broken", value="no"), False),
        (DeviceToleration(key="example.com/broken", value="yes"), True),
        (DeviceToleration(operator="", key="example.com/broken", value="yes"), True),
        (DeviceToleration(key="example.com/broken"), False),
        (DeviceToleration(operator="Unknown", key="example.com/broken", value="yes"), False),
        (DeviceToleration(operator="Exists", toleration_seconds=0), True),
    ],
)
def test_toleration_covers_taint(toleration: DeviceToleration, covered: bool) -> None:
    assert tolerates(toleration, TAINT) is covered


@pytest.mark.parametrize(
    ("effect", "repels"), [("NoSchedule", True), ("NoExecute", True), ("None", False), ("", False)]
)
def test_only_two_effects_repel(effect: str, repels: bool) -> None:
    taint = DeviceTaint(key="k", effect=effect)
    assert untolerated([taint], []) == (taint if repels else None)


BROKEN = {"name": "bad", "taints": [{"key": "broken", "value": "yes", "effect": "NoSchedule"}]}
SLICES = [slice_of(BROKEN, "good")]


@pytest.mark.parametrize(
    ("seconds", "effect", "shortest"),
    [((), "NoExecute", []), ((60, 30), "NoExecute", [30]), ((60, None), "NoExecute", []), ((60,), "NoSchedule", [])],
    ids=["not-tolerated", "the-shortest-counts", "without-end", "no-effect-on-running-pods"],
)
def test_taint_that_is_tolerated_for_some_seconds_only(
    seconds: tuple[int | None, ...], effect: str, shortest: list[int]
) -> None:
    taint = DeviceTaint(key=TAINT.key, value=TAINT.value, effect=effect)
    tolerations = [DeviceToleration(operator="Exists", toleration_seconds=limit) for limit in seconds]
    assert [limit for _, limit in briefly_tolerated([taint], tolerations)] == shortest


def test_exact_count_moves_on_and_mode_all_fails() -> None:
    assert picks(ask(SLICES, claim_of(exactly()))) == [["good"]]
    found = reasons(ask(SLICES, claim_of(every())))
    assert found.verdict == "no"
    assert found.rejections[0].code is Code.TAINTED
    assert found.rejections[0].detail == "bad has taint broken=yes:NoSchedule"


def test_admin_access_does_not_exempt() -> None:
    assert picks(ask(SLICES, claim_of(exactly(adminAccess=True)))) == [["good"]]


def test_tolerations_admit_and_are_copied_into_every_result() -> None:
    tolerations = [{"key": "broken", "operator": "Exists"}, {"key": "other", "operator": "Exists"}]
    found = ask(SLICES, claim_of(exactly(2, tolerations=tolerations)))
    assert picks(found) == [["bad", "good"]]
    results = found.claims[0].allocation.devices.results  # type: ignore[union-attr]
    assert [[each.key for each in result.tolerations] for result in results] == [["broken", "other"]] * 2


def test_switched_off_taints_are_ignored() -> None:
    features = dataclasses.replace(Features(), device_taints=False)
    assert picks(ask(SLICES, claim_of(exactly()), features=features)) == [["bad"]]


def test_empty_members_of_a_toleration_are_left_out_of_results_as_api_servers_do() -> None:
    tolerations = [{"key": "", "operator": "Equal", "value": "", "effect": ""}, {"operator": "Exists"}]
    found = ask([slice_of("a")], claim_of(exactly(tolerations=tolerations)))
    assert isinstance(found, Placement)
    result = plain(found.claims[0].allocation)["devices"]["results"][0]
    assert list(result["tolerations"]) == [{"operator": "Equal"}, {"operator": "Exists"}]
