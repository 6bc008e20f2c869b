"""`bindsToNode` keeps the device: while a share of it is allocated on a node, other nodes get none."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest
from dra_extender.allocator.overlay.policy import PolicyOverlay, PolicyRule
from dra_extender.allocator.rules.violations import DEVICE, NODE, pool_violation, published_pool
from dra_extender.allocator.state.features import UPSTREAM, Features
from dra_extender.allocator.state.reasons import Code
from dra_extender.ledger.hold_book import kept_by
from dra_extender.model.allocation import AllocationResult, DeviceHolding, Placement
from dra_extender.model.node import Node
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    DRIVER,
    Held,
    Json,
    allocate,
    ask,
    claim_of,
    contradictions,
    demand_of,
    either,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    share,
    shareable,
    slice_of,
)
from tests.support.allocator.building import (
    NODE as FIRST,
)
from tests.support.examples import examples

SECOND = Node(name="node-2", labels={"region": "west"})
THIRD = Node(name="node-3", labels={"region": "west"})
POOL = (DRIVER, "pool")


def fabric(*devices: Json, **spec: Any) -> list[ResourceSlice]:
    """A pool that every node reaches."""
    return [slice_of(*devices, **({"allNodes": True} | spec))]


def bound(name: str = "f0", **more: Any) -> Json:
    return shareable(name, None, bindsToNode=True, **more)


def taken(slices: Sequence[ResourceSlice], node: Node = FIRST, **more: Any) -> list[DeviceHolding]:
    """What a claim holds that gets one device on the node."""
    found = ask(slices, claim_of(exactly(**more)), node=node)
    assert isinstance(found, Placement), found
    return list(found.claims[0].holdings)


def test_a_further_share_stays_on_the_node_of_the_first() -> None:
    slices = fabric(bound())
    usage = taken(slices)
    assert usage[0].node == FIRST.name
    assert picks(ask(slices, claim_of(exactly()), usage=usage)) == [["f0"]]
    (rejection, *_) = reasons(ask(slices, claim_of(exactly()), usage=usage, node=SECOND)).rejections
    assert rejection.code is Code.BOUND_ELSEWHERE
    assert rejection.detail == "f0 is bound to node node-1 as long as a claim has a share of it there"
    assert picks(ask(slices, claim_of(exactly()), node=SECOND)) == [["f0"]]


def test_another_device_is_taken_instead_and_mode_all_fails_as_beside_a_taken_device() -> None:
    slices = fabric(bound("f0"), bound("f1"))
    usage = taken(slices)
    assert picks(ask(slices, claim_of(exactly()), usage=usage, node=SECOND)) == [["f1"]]
    assert reasons(ask(slices, claim_of(every()), usage=usage, node=SECOND)).rejections[0].code is Code.BOUND_ELSEWHERE


def test_a_device_that_does_not_bind_goes_to_any_node() -> None:
    slices = fabric(shareable("f0", None))
    assert picks(ask(slices, claim_of(exactly()), usage=taken(slices), node=SECOND)) == [["f0"]]


def test_upstream_gives_further_shares_to_any_node() -> None:
    slices = fabric(bound())
    assert picks(ask(slices, claim_of(exactly()), usage=taken(slices), node=SECOND, release=UPSTREAM)) == [["f0"]]


def test_admin_access_neither_binds_a_device_nor_is_kept_from_one() -> None:
    slices = fabric(bound())
    watching = taken(slices, adminAccess=True)
    assert picks(ask(slices, claim_of(exactly()), usage=watching, node=SECOND)) == [["f0"]]
    assert picks(ask(slices, claim_of(exactly(adminAccess=True)), usage=taken(slices), node=SECOND)) == [["f0"]]


def test_a_policy_that_binds_devices_binds_those_that_are_allocated_to_a_node() -> None:
    """Before the policy the claim named its node for another reason, such as a device that is local to it."""
    plain = fabric(shareable("f0", None))
    policy = PolicyOverlay([PolicyRule(name="bind", binds_to_node=True)])
    slices = [policy.apply(each).effective for each in plain]
    known = share("f0", share_id="1", node=FIRST.name)
    assert (
        reasons(ask(slices, claim_of(exactly()), usage=[known], node=SECOND)).rejections[0].code is Code.BOUND_ELSEWHERE
    )
    assert picks(ask(plain, claim_of(exactly()), usage=[known], node=SECOND)) == [["f0"]]


def test_a_republished_device_stays_where_it_was_bound() -> None:
    usage = taken(fabric(bound()))
    slices = fabric(shareable("f0", None), generation=2)
    found = reasons(ask(slices, claim_of(exactly()), usage=usage, node=SECOND))
    assert found.rejections[0].code is Code.BOUND_ELSEWHERE


@pytest.mark.parametrize(
    ("now", "features"),
    [
        pytest.param(shareable("f0", None), Features(), id="republished"),
        pytest.param(bound(), dataclasses.replace(Features(), device_binding_and_status=False), id="feature-off"),
    ],
)
def test_a_further_share_of_a_device_that_was_bound_names_the_node_and_keeps_it_there(
    now: Json, features: Features
) -> None:
    """Otherwise a second pod of that claim could use the device on another node."""
    slices = fabric(now, generation=2)
    first = taken(fabric(bound()))
    found = ask(slices, claim_of(exactly()), usage=first, features=features)
    assert isinstance(found, Placement)
    (second,) = found.claims
    assert second.allocation.node_selector is not None
    assert not second.allocation.allows(SECOND)
    after_the_first = ask(slices, claim_of(exactly()), usage=second.holdings, node=SECOND, features=features)
    assert reasons(after_the_first).rejections[0].code is Code.BOUND_ELSEWHERE
    assert ask(slices, claim_of(exactly()), features=features, release=UPSTREAM) == ask(
        slices, claim_of(exactly()), usage=first, features=features, release=UPSTREAM
    )


def test_admin_access_to_a_device_that_was_bound_names_no_node() -> None:
    found = ask(fabric(shareable("f0", None)), claim_of(exactly(adminAccess=True)), usage=taken(fabric(bound())))
    assert isinstance(found, Placement)
    assert found.claims[0].allocation.node_selector is None


def test_only_the_requests_of_a_claim_without_admin_access_are_kept_from_the_device() -> None:
    slices = fabric(bound("f0"), bound("f1"))
    watch, use = exactly(1, "w", adminAccess=True), exactly(1, "u")
    for requests, expected in (((watch, use), ["f0", "f1"]), ((use, watch), ["f1", "f0"])):
        found = ask(slices, claim_of(*requests), usage=taken(slices), node=SECOND)
        assert picks(found) == [expected]
        assert isinstance(found, Placement)
        bound_to = {each.device: each.node for each in found.claims[0].holdings}
        assert bound_to == {"f0": None, "f1": SECOND.name}


def test_an_alternative_is_taken_where_the_device_is_bound_elsewhere() -> None:
    slices = fabric(bound("f0"), shareable("f1", None))
    wanted = claim_of(either(exactly(2), exactly(1)))
    assert picks(ask(slices, wanted, usage=taken(slices))) == [["f0", "f1"]]
    assert picks(ask(slices, wanted, usage=taken(slices), node=SECOND)) == [["f1"]]


def test_a_device_of_a_node_is_not_mistaken_for_one_of_that_name_on_another_node() -> None:
    first = [slice_of(bound(), nodeName=FIRST.name)]
    second = [slice_of(bound(), nodeName=SECOND.name, name="second")]
    assert picks(ask(second, claim_of(exactly()), usage=taken(first), node=SECOND)) == [["f0"]]


def test_with_binding_conditions_off_a_device_that_was_bound_stays() -> None:
    off = dataclasses.replace(Features(), device_binding_and_status=False)
    slices = fabric(bound())
    found = ask(slices, claim_of(exactly()), usage=taken(slices), node=SECOND, features=off)
    assert reasons(found).rejections[0].code is Code.BOUND_ELSEWHERE
    unbound = allocate(demand_of(claim_of(exactly()), features=off), FIRST, pools_of(slices, FIRST, off), Held())
    assert isinstance(unbound, Placement)
    assert picks(ask(slices, claim_of(exactly()), usage=unbound.claims[0].holdings, node=SECOND, features=off)) == [
        ["f0"]
    ]


def test_a_hold_on_several_nodes_keeps_the_device_for_each_of_them() -> None:
    slices = fabric(bound())
    offers = [ask(slices, claim_of(exactly()), node=node) for node in (FIRST, SECOND)]
    kept = kept_by(found.claims[0] for found in offers if isinstance(found, Placement))
    assert {each.node for each in kept} == {FIRST.name, SECOND.name}
    for node in (FIRST, SECOND, THIRD):
        assert (
            reasons(ask(slices, claim_of(exactly()), usage=kept, node=node)).rejections[0].code is Code.BOUND_ELSEWHERE
        )


def on(node: Node | None, share_id: str, **more: Any) -> DeviceHolding:
    return share("f0", share_id=share_id, node=None if node is None else node.name, **more)


@pytest.mark.parametrize(
    ("usage", "addition", "expected"),
    [
        pytest.param([on(FIRST, "1")], on(FIRST, "2"), None, id="same-node"),
        pytest.param([on(FIRST, "1")], on(SECOND, "2"), NODE, id="other-node"),
        pytest.param([on(None, "1")], on(SECOND, "2"), None, id="no-node-named"),
        pytest.param([share("f0", share_id="1", admin=True)], on(SECOND, "2"), None, id="admin-access"),
        pytest.param([on(FIRST, "1")], held("f0"), DEVICE, id="whole"),
    ],
)
def test_the_verdict_about_shares_on_two_nodes(
    usage: list[DeviceHolding], addition: DeviceHolding, expected: str | None
) -> None:
    pool = published_pool(POOL, fabric(bound()))
    found = pool_violation(pool, Held(*usage).pool(POOL), [addition])
    assert (None if found is None else found.kind) == expected
    both = {each.kind for each in contradictions(pool, Held(*usage, addition).pool(POOL))}
    assert both == ({expected} if expected else set())


@examples(75)
@given(
    binding=st.lists(st.booleans(), min_size=1, max_size=3),
    steps=st.lists(st.tuples(st.sampled_from([FIRST, SECOND, THIRD]), st.booleans()), max_size=8),
)
def test_whatever_is_allocated_in_turn_no_device_that_binds_is_on_two_nodes(
    binding: list[bool], steps: list[tuple[Node, bool]]
) -> None:
    """Every placement of the search passes the verdict, too."""
    slices = fabric(*(shareable(f"f{index}", None, bindsToNode=binds) for index, binds in enumerate(binding)))
    pool, usage = published_pool(POOL, slices), list[DeviceHolding]()
    nodes: dict[str, set[str]] = {}
    for node, admin in steps:
        found = ask(slices, claim_of(exactly(adminAccess=True) if admin else exactly()), usage=usage, node=node)
        if not isinstance(found, Placement):
            free = [
                index
                for index, binds in enumerate(binding)
                if not binds or nodes.get(f"f{index}", set()) <= {node.name}
            ]
            assert not free
            continue
        holdings = found.claims[0].holdings
        assert pool_violation(pool, Held(*usage).pool(POOL), holdings) is None
        usage += holdings
        if not admin:
            nodes.setdefault(holdings[0].device, set()).add(node.name)
    assert not (contradictions(pool, Held(*usage).pool(POOL)))
    assert all(len(names) == 1 for name, names in nodes.items() if binding[int(name[1:])])


@examples(150)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("claim"), st.sampled_from([FIRST, SECOND, THIRD]), st.integers(0, 2)),
            st.tuples(st.just("release"), st.integers(0, 5)),
            st.tuples(st.just("publish"), st.booleans()),
        ),
        max_size=12,
    )
)
def test_an_attached_device_is_used_on_its_node_alone_until_its_last_share_is_gone(
    steps: list[tuple[Any, ...]],
) -> None:
    """Claims with admin access, releases in any order, and slices that say and unsay that the device binds."""
    binding, attached = True, ""
    claims: list[tuple[AllocationResult, DeviceHolding]] = []
    for step in steps:
        if step[0] == "publish":
            binding = step[1]
        elif step[0] == "release" and claims:
            claims.pop(step[1] % len(claims))
            attached = attached if any(holding.node for _, holding in claims) else ""
        elif step[0] == "claim":
            node, admin = step[1], step[2] == 0
            slices = fabric(shareable("f0", None, bindsToNode=binding))
            usage = [holding for _, holding in claims]
            found = ask(slices, claim_of(exactly(adminAccess=admin)), usage=usage, node=node)
            unbound = {holding.node for holding in usage if not holding.admin} <= {None}
            if admin or (unbound and not attached) or attached == node.name:
                assert isinstance(found, Placement)
            if not isinstance(found, Placement):
                continue
            (placement,) = found.claims
            claims.append((placement.allocation, placement.holdings[0]))
            if admin:
                continue
            assert attached in ("", node.name)
            if binding or attached:
                attached = node.name
                assert [each for each in (FIRST, SECOND, THIRD) if placement.allocation.allows(each)] == [node]
            pool = published_pool(POOL, slices)
            assert pool_violation(pool, Held(*usage).pool(POOL), placement.holdings) is None
