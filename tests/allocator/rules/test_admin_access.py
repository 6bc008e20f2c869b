"""Admin access beside compatibility groups and `compatibleOnlyWith`: the admin's policy neither refuses nor counts it."""

import itertools
from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.program import compile_expression
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    Json,
    ask,
    claim_of,
    consuming,
    counters_of,
    every,
    exactly,
    held,
    picks,
    reasons,
    slice_of,
)
from tests.support.examples import examples

KIND = 'device.attributes["gpu.example.com"].kind'
SCHEMES = ("mig", "vgpu", "mps")
THRESHOLD = "dra_extender.allocator.search.search._DEAD_ENDS_BEFORE_PRUNING"
SHAREABLE: Json = {"allowMultipleAllocations": True}


def is_kind(kind: str) -> str:
    return f'{KIND} == "{kind}"'


def part(name: str, kind: str, *groups: str, **more: Any) -> Json:
    """A partition of this kind on the counter set `set`; `groups` are those that its driver publishes."""
    return consuming(name, *groups, attributes={"kind": {"string": kind}, "gpu": {"string": "gpu-0"}}, **more)


def rule(kind: str, **fields: Any) -> PolicyRule:
    return PolicyRule(name=f"rule-{kind}", devices=compile_expression(is_kind(kind)), **fields)


GROUPS = PolicyOverlay([rule(kind, compatibility_groups=(kind,)) for kind in SCHEMES])
PHYSICAL = PolicyOverlay(
    [
        PolicyRule(
            name="gpu", physical_device=compile_expression('device.attributes["gpu.example.com"].gpu', derived=True)
        ),
        *GROUPS.rules,
    ]
)
NEIGHBOURS = PolicyOverlay([rule(kind, compatible_only_with=is_kind(kind)) for kind in SCHEMES])
POLICIES = [
    pytest.param(GROUPS, id="groups"),
    pytest.param(PHYSICAL, id="physical-device"),
    pytest.param(NEIGHBOURS, id="compatible-only-with"),
]


def under(policy: PolicyOverlay, *devices: Json) -> list[ResourceSlice]:
    return [policy.apply(each).effective for each in (counters_of(set=99), slice_of(*devices, count=2))]


def monitoring(name: str = "admin", expression: str | None = None) -> Json:
    return every(name, expression, adminAccess=True)


MIXED = (part("m0", "mig"), part("m1", "mig"), part("v0", "vgpu"), part("s0", "mps"))
ALL = ["m0", "m1", "v0", "s0"]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("taken", [(), ("m0",), ("v0",)], ids=["nothing-taken", "mig-taken", "vgpu-taken"])
def test_a_pod_that_monitors_all_devices_runs_under_any_policy(policy: PolicyOverlay, taken: tuple[str, ...]) -> None:
    slices = under(policy, *MIXED)
    assert picks(ask(slices, claim_of(monitoring()), usage=[held(name) for name in taken])) == [ALL]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_pod_monitors_does_not_count_against_its_other_claims(policy: PolicyOverlay) -> None:
    """The order of the claims does not matter; a device that is picked with admin access stays unavailable, as in upstream."""
    slices = under(policy, *MIXED)
    watch, use = exactly(1, "w", is_kind("vgpu"), adminAccess=True), exactly(2, "u", is_kind("mig"))
    assert picks(ask(slices, claim_of(watch), claim_of(use))) == [["v0"], ["m0", "m1"]]
    assert picks(ask(slices, claim_of(use), claim_of(watch))) == [["m0", "m1"], ["v0"]]
    assert picks(ask(slices, claim_of(watch, use))) == [["v0", "m0", "m1"]]
    both = ask(slices, claim_of(watch), claim_of(use), claim_of(exactly(1, "x", is_kind("mps"))))
    assert reasons(both).rejections[0].code in (Code.GROUPS, Code.NEIGHBOURS)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_allocation_with_admin_access_counts_against_nobody(policy: PolicyOverlay) -> None:
    """Its snapshot is that of its allocation; a restart reads it again."""
    slices = under(policy, *MIXED)
    found = ask(slices, claim_of(monitoring()))
    assert isinstance(found, Placement)
    usage = [holding for claim in found.claims for holding in claim.holdings]
    assert picks(ask(slices, claim_of(exactly(1, "u", is_kind("vgpu"))), usage=usage)) == [["v0"]]
    assert picks(ask(slices, claim_of(monitoring()), usage=usage)) == [ALL]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_share_beside_one_with_admin_access_is_the_first_that_counts(policy: PolicyOverlay) -> None:
    """The share with admin access joined nothing, so the one without is no further share of a member."""
    slices = under(policy, part("v0", "vgpu", **SHAREABLE), part("m0", "mig"))
    watch, use = exactly(1, "w", is_kind("vgpu"), adminAccess=True), exactly(1, "u", is_kind("vgpu"))
    assert picks(ask(slices, claim_of(watch), claim_of(use))) == [["v0"], ["v0"]]
    assert picks(ask(slices, claim_of(watch), usage=[held("m0")])) == [["v0"]]
    refused = reasons(ask(slices, claim_of(watch), claim_of(use), usage=[held("m0")]))
    assert refused.rejections[0].code in (Code.GROUPS, Code.NEIGHBOURS)


def test_groups_of_the_driver_apply_as_in_upstream() -> None:
    slices = under(GROUPS, part("m0", "x", "mig"), part("v0", "y", "vgpu"), part("n0", "z"))
    watch = exactly(1, "w", is_kind("y"), adminAccess=True)
    refused = reasons(ask(slices, claim_of(watch), usage=[held("m0")]))
    assert refused.rejections[0].code is Code.GROUPS
    assert picks(ask(slices, claim_of(watch), usage=[held("m0", admin=True)])) == [["v0"]]
    later = reasons(ask(slices, claim_of(watch), claim_of(exactly(1, "u", is_kind("x")))))
    assert later.rejections[0].code is Code.GROUPS


def test_groups_of_the_driver_and_of_the_policy_on_one_counter_set() -> None:
    """Those of the policy neither stand in the way of those of the driver nor are tested against them."""
    slices = under(GROUPS, part("d0", "x", "mig"), part("m0", "mig"), part("v0", "vgpu"), part("n0", "none"))
    for name in ("d0", "m0", "v0", "n0"):
        watch = exactly(1, "w", is_kind({"d0": "x", "n0": "none"}.get(name, "mig" if name == "m0" else "vgpu")))
        watch["exactly"]["adminAccess"] = True
        for other in {"d0", "m0", "v0", "n0"} - {name}:
            refused = {name, other} == {"d0", "n0"}
            found = ask(slices, claim_of(watch), usage=[held(other)])
            assert isinstance(found, Placement) is not refused, (name, other)


def test_a_reason_for_admin_access_names_only_members_that_count() -> None:
    slices = under(GROUPS, part("d0", "x", "one"), part("v0", "vgpu"), part("d1", "y", "two"))
    watch = exactly(1, "w", is_kind("y"), adminAccess=True)
    usage = [held("d0"), held("v0")]
    (rejection, *_) = reasons(ask(slices, claim_of(watch), usage=usage)).rejections
    assert rejection.code is Code.GROUPS
    assert "d0 (in use)" in rejection.detail
    assert "v0" not in rejection.detail


kinds = st.sampled_from([*SCHEMES, "none"])


@examples(75)
@given(
    devices=st.lists(st.tuples(kinds, st.booleans()), min_size=1, max_size=6),
    taken=st.sets(st.integers(0, 5), max_size=3),
    requests=st.lists(st.tuples(st.integers(1, 3), st.none() | kinds), min_size=1, max_size=3),
    policy=st.sampled_from([GROUPS, PHYSICAL, NEIGHBOURS]),
)
def test_admin_access_is_answered_as_without_a_policy(
    devices: list[tuple[str, bool]],
    taken: set[int],
    requests: list[tuple[int, str | None]],
    policy: PolicyOverlay,
) -> None:
    """Drivers publish no groups here."""
    parts = [part(f"d{index}", kind, **(SHAREABLE if shared else {})) for index, (kind, shared) in enumerate(devices)]
    usage = [
        held(f"d{index}", share_id=f"s{index}" if devices[index][1] else None)
        for index in taken
        if index < len(devices)
    ]
    claims = [
        claim_of(exactly(count, "w", None if kind is None else is_kind(kind), adminAccess=True))
        for count, kind in requests
    ]
    plain = [counters_of(set=99), slice_of(*parts, count=2)]
    expected, found = ask(plain, *claims, usage=usage), ask(under(policy, *parts), *claims, usage=usage)
    assert isinstance(found, Placement) is isinstance(expected, Placement)
    if isinstance(found, Placement):
        assert picks(found) == picks(expected)


@examples(150)
@given(
    devices=st.lists(st.tuples(kinds, st.booleans()), min_size=1, max_size=5),
    wanted=st.lists(st.tuples(st.booleans(), st.none() | kinds), min_size=2, max_size=4),
    policy=st.sampled_from([GROUPS, NEIGHBOURS]),
    threshold=st.sampled_from([0, 10**9]),
)
def test_a_pod_fits_if_some_choice_of_devices_keeps_the_policy_for_what_it_takes(
    devices: list[tuple[str, bool]], wanted: list[tuple[bool, str | None]], policy: PolicyOverlay, threshold: int
) -> None:
    """Every choice is tried; a pod with devices of different kinds, each of a claim of its own, admin access or not."""
    parts = [part(f"d{index}", kind, **(SHAREABLE if shared else {})) for index, (kind, shared) in enumerate(devices)]
    claims = [
        claim_of(exactly(1, "r", None if kind is None else is_kind(kind), **({"adminAccess": True} if admin else {})))
        for admin, kind in wanted
    ]
    with patch(THRESHOLD, threshold):
        found = ask(under(policy, *parts), *claims)
    choices = itertools.product(range(len(devices)), repeat=len(wanted))
    assert isinstance(found, Placement) is any(_allowed(choice, devices, wanted) for choice in choices)


def _allowed(choice: tuple[int, ...], devices: list[tuple[str, bool]], wanted: list[tuple[bool, str | None]]) -> bool:
    """Whether all devices match, none is taken twice, and those without admin access are of one kind."""
    marked: set[int] = set()
    taken_kinds: set[str] = set()
    for device, (admin, kind) in zip(choice, wanted, strict=True):
        own_kind, shareable = devices[device]
        if kind not in (None, own_kind) or (not admin and device in marked and not shareable):
            return False
        marked.add(device)
        if not admin:
            taken_kinds.add(own_kind)
    return len(taken_kinds) < 2


def test_snapshots_of_the_policy_and_of_the_driver_merge_as_what_they_are() -> None:
    """Two shares that were allocated under different policies: only the groups of the driver concern admin access."""
    (slice_,) = under(GROUPS, part("v0", "vgpu", **SHAREABLE))[1:]
    by_policy = slice_.devices[0].consumes_counters
    published = slice_of(part("v0", "vgpu", "old", **SHAREABLE)).devices[0].consumes_counters
    usage: list[DeviceHolding] = [
        held("v0", share_id="1", consumption=by_policy),
        held("v0", share_id="2", consumption=published),
    ]
    slices = under(GROUPS, part("v0", "vgpu", **SHAREABLE), part("d0", "x", "old"), part("d1", "y", "new"))
    seen, refused = (claim_of(exactly(1, "w", is_kind(kind), adminAccess=True)) for kind in ("x", "y"))
    assert picks(ask(slices, seen, usage=usage)) == [["d0"]]
    assert reasons(ask(slices, refused, usage=usage)).rejections[0].code is Code.GROUPS
