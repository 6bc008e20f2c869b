"""Rules that change what an attempt keeps: counters by the name of the pool, distinctAttribute by request, free admin access."""

from typing import Any
from unittest.mock import patch

import pytest
from dra_extender.allocator.allocate import allocate
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.features import OWN, ReleaseBehaviour
from dra_extender.allocator.state.reasons import Code, NoFit, SearchEndedError
from dra_extender.model.allocation import DeviceHolding, Placement
from dra_extender.model.resource_claim import ResourceClaim
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    DRIVER,
    NODE,
    Held,
    claim_of,
    consuming,
    counters_of,
    demand_of,
    either,
    every,
    exactly,
    held,
    picks,
    pools_of,
    reasons,
    slice_of,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.allocator.other_releases import (
    ReleaseSearchState,
    allocate_as_release,
    release_rules,
    release_search_state,
)
from tests.support.examples import examples

BY_NAME = release_rules(OWN, counters_by_driver=False)
BY_REQUEST = release_rules(OWN, distinct_from_every_device=False)
FREE_ADMIN = release_rules(OWN, admin_access_pays_counters=False)
KEY = "gpu.example.com/k"
OTHER = "nic.example.com"
DISTINCT = [{"distinctAttribute": KEY}]
THRESHOLD = "dra_extender.allocator.search.search._DEAD_ENDS_BEFORE_PRUNING"


def under(
    release: ReleaseBehaviour,
    slices: list[ResourceSlice],
    *wanted: ResourceClaim,
    usage: list[DeviceHolding] | None = None,
) -> Placement | NoFit:
    return allocate_as_release(demand_of(*wanted), NODE, pools_of(slices), Held(*usage or []), release=release)


# ---- counters by the name of the pool alone


def two_drivers(counter_set: str, total: int) -> list[ResourceSlice]:
    """Pools of one name: `a` draws on "set", of which there is 1, `b` of the other driver on its own set."""
    sets = [{"name": counter_set, "counters": {"c": {"value": str(total)}}}]
    other: Any = {"driver": OTHER, "count": 2}
    return [
        counters_of(set=1),
        slice_of(consuming("a"), count=2),
        slice_of(name="s3", sharedCounters=sets, **other),
        slice_of(consuming("b", counter_set=counter_set), name="s4", **other),
    ]


def one_of(*drivers: str) -> ResourceClaim:
    return claim_of(*(exactly(name=f"r{i}", expression=f"device.driver == {d!r}") for i, d in enumerate(drivers)))


def test_pools_of_one_name_draw_on_the_same_counters_or_on_their_own() -> None:
    slices = two_drivers("set", 1)
    assert picks(under(OWN, slices, one_of(DRIVER, OTHER))) == [["a", "b"]]
    assert reasons(under(BY_NAME, slices, one_of(DRIVER, OTHER))).rejections[0].code is Code.COUNTERS


def test_sets_that_the_first_pool_of_the_name_does_not_have_are_unlimited_or_not() -> None:
    slices = two_drivers("own", 0)
    assert reasons(under(OWN, slices, one_of(DRIVER, OTHER))).rejections[0].code is Code.COUNTERS
    assert picks(under(BY_NAME, slices, one_of(DRIVER, OTHER))) == [["a", "b"]]
    assert reasons(under(BY_NAME, slices, one_of(OTHER, DRIVER))).rejections[0].code is Code.COUNTERS


def test_held_devices_of_the_first_pool_count_for_all_pools_of_its_name() -> None:
    slices = [*two_drivers("set", 1)]
    usage = [held("a")]
    assert picks(under(BY_NAME, slices, one_of(OTHER), usage=usage)) == [["b"]]
    slices[1] = slice_of(consuming("a"), consuming("c", amount=0), count=2)
    first = claim_of(exactly(expression=f"device.driver == {DRIVER!r}"))
    assert picks(under(OWN, slices, first, one_of(OTHER), usage=usage)) == [["c"], ["b"]]
    assert isinstance(under(BY_NAME, slices, first, one_of(OTHER), usage=usage), NoFit)


# ---- distinctAttribute compared with the last device of each request


def valued(*values: int | str | None) -> list[ResourceSlice]:
    def attributes(value: int | str | None) -> Any:
        kind = "int" if isinstance(value, int) else "string"
        return {"attributes": {"k": {} if value is None else {kind: value}}}

    return [slice_of(*({"name": f"d{i}", **attributes(value)} for i, value in enumerate(values, start=1)))]


@pytest.mark.parametrize(
    ("values", "count", "ours", "before"),
    [
        pytest.param([1, 2, 1, 3], 3, ["d1", "d2", "d4"], ["d1", "d2", "d3"], id="three"),
        pytest.param([1, 1, 2], 2, ["d1", "d3"], ["d1", "d3"], id="two"),
        pytest.param([1, "1", "1", 2], 3, ["d1", "d2", "d4"], ["d1", "d2", "d4"], id="types"),
    ],
)
def test_values_of_one_request_are_compared_with_all_or_with_the_last(
    values: list[int | str | None], count: int, ours: list[str], before: list[str]
) -> None:
    wanted = claim_of(exactly(count), constraints=DISTINCT)
    assert picks(under(OWN, valued(*values), wanted)) == [ours]
    assert picks(under(BY_REQUEST, valued(*values), wanted)) == [before]


def test_device_that_is_given_up_takes_what_its_request_had_with_it() -> None:
    """The second request cannot be met beside d1 and d2; after d2 is given up d3 is not compared with d1 any more."""
    slices = valued(1, 2, 1, 3)
    last = f"device.attributes['{DRIVER}'].k == 2"
    wanted = claim_of(exactly(2), exactly(name="s", expression=last), constraints=DISTINCT)
    assert picks(under(OWN, slices, wanted)) == [["d1", "d4", "d2"]]
    assert picks(under(BY_REQUEST, slices, wanted)) == [["d1", "d3", "d2"]]


def test_devices_of_different_requests_are_compared_either_way() -> None:
    wanted = claim_of(exactly(), exactly(name="s"), constraints=DISTINCT)
    for release in (OWN, BY_REQUEST):
        assert picks(under(release, valued(1, 1, 2), wanted)) == [["d1", "d3"]]


def test_alternatives_count_as_their_request() -> None:
    wanted = claim_of(either(exactly(3), exactly()), constraints=DISTINCT)
    assert picks(under(OWN, valued(1, 2, 1), wanted)) == [["d1"]]
    assert picks(under(BY_REQUEST, valued(1, 2, 1), wanted)) == [["d1", "d2", "d3"]]


def test_attribute_without_value_may_be_the_first_but_no_further_one() -> None:
    wanted = claim_of(exactly(2), constraints=DISTINCT)
    assert picks(under(BY_REQUEST, valued(None, 1), wanted)) == [["d1", "d2"]]
    assert isinstance(under(BY_REQUEST, valued(1, None), wanted), NoFit)


def test_mode_all_that_a_value_by_request_refuses_is_an_error_that_names_the_constraint() -> None:
    found = reasons(under(BY_REQUEST, valued(1, 2, 2), claim_of(every(), constraints=DISTINCT)))
    assert (found.verdict, found.rejections[0].code) == ("fatal", Code.CONSTRAINT)
    assert found.rejections[0].detail == f"d3 does not satisfy distinctAttribute {KEY}: another one has 2 too"
    match = [{"matchAttribute": KEY}, *DISTINCT]
    found = reasons(under(BY_REQUEST, valued(1, 2), claim_of(every(), constraints=match)))
    assert found.rejections[0].detail == f"d2 does not satisfy matchAttribute {KEY}: it has 2, the others have 1"


# ---- admin access that pays no counters


def test_admin_access_pays_counters_or_not() -> None:
    slices = [counters_of(set=4), slice_of(consuming("a", amount=4), consuming("b", amount=4), count=2)]
    wanted = claim_of(exactly(adminAccess=True))
    assert reasons(under(OWN, slices, wanted, usage=[held("a")])).rejections[0].code is Code.COUNTERS
    assert picks(under(FREE_ADMIN, slices, wanted, usage=[held("a")])) == [["a"]]
    both = claim_of(exactly(adminAccess=True), exactly(name="s"))
    assert picks(under(FREE_ADMIN, slices, both)) == [["a", "b"]]
    assert isinstance(under(FREE_ADMIN, slices, both, usage=[held("a")]), NoFit)


def test_admin_access_joins_groups_either_way() -> None:
    slices = [counters_of(set=4), slice_of(consuming("a", "mig"), consuming("b", "vgpu"), count=2)]
    both = claim_of(exactly(adminAccess=True), exactly(name="s"))
    for release in (OWN, FREE_ADMIN):
        assert reasons(under(release, slices, both)).rejections[0].code is Code.GROUPS


def test_share_after_one_with_admin_access_pays_for_the_device() -> None:
    shareable: Any = {"allowMultipleAllocations": True}
    slices = [counters_of(set=4), slice_of(consuming("a", amount=3, **shareable), consuming("b", amount=3), count=2)]
    a, b = (exactly(name=n, expression=f"{'' if n == 'a' else '!'}device.allowMultipleAllocations") for n in "ab")
    admin = exactly(name="admin", expression="device.allowMultipleAllocations", adminAccess=True)
    again = {**a, "name": "again"}
    assert picks(under(FREE_ADMIN, slices, claim_of(admin, b))) == [["a", "b"]]
    assert picks(under(FREE_ADMIN, slices, claim_of(admin, a, again))) == [["a", "a", "a"]]
    assert reasons(under(FREE_ADMIN, slices, claim_of(admin, a, b))).rejections[0].code is Code.COUNTERS
    assert isinstance(under(FREE_ADMIN, slices, claim_of(b, admin, a)), NoFit)


# ---- the search


ALL_RULES = [BY_NAME, BY_REQUEST, FREE_ADMIN, release_rules(BY_NAME, distinct_from_every_device=False)]


def of_other_driver(slices: list[Any], devices: list[Any]) -> list[Any]:
    """The slices, and a pool of the same name of another driver."""
    more: Any = {"driver": OTHER, "count": 2}
    sets = [{"name": name, "counters": {"c": {"value": "2"}}} for name in ("set", "third")]
    return [*slices, slice_of(*devices, name="t1", **more), slice_of(name="t2", sharedCounters=sets, **more)]


others = st.lists(
    st.tuples(st.sampled_from(["set", "third"]), st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=3
).map(
    lambda found: [
        consuming(f"o{i}", counter_set=name, amount=amount, attributes={KEY: {"int": value}})
        for i, (name, amount, value) in enumerate(found)
    ]
)


@examples(200)
@given(
    slices=st.one_of(nodes, st.builds(of_other_driver, nodes, others)),
    wanted=st.lists(claims, min_size=1, max_size=3),
    usage=usages,
    release=st.sampled_from(ALL_RULES),
)
def test_pruning_changes_no_answer_under_any_rules(
    slices: list[Any], wanted: list[Any], usage: list[Any], release: ReleaseBehaviour
) -> None:
    demand, pools = demand_of(*wanted), pools_of(slices)
    with patch(THRESHOLD, 10**9):
        plain = allocate_as_release(demand, NODE, pools, Held(*usage), release=release)
    with patch(THRESHOLD, 1):
        pruned = allocate_as_release(demand, NODE, pools, Held(*usage), release=release)
    if isinstance(plain, Placement):
        assert isinstance(pruned, Placement)
        assert pruned.claims == plain.claims
    else:
        assert reasons(pruned).verdict == plain.verdict
    assert pruned.steps <= plain.steps


@examples(75)
@given(slices=nodes, wanted=st.lists(claims, min_size=1, max_size=2), usage=usages, release=st.sampled_from(ALL_RULES))
def test_rules_that_have_no_say_change_no_answer(
    slices: list[Any], wanted: list[Any], usage: list[Any], release: ReleaseBehaviour
) -> None:
    demand, pools = demand_of(*wanted), pools_of(slices)
    node_view = NodeView(NODE, pools, Held(*usage), None, release)
    if release_search_state(demand, node_view).undo_is_exact:
        found = allocate_as_release(demand, NODE, pools, Held(*usage), release=release)
        assert found == allocate(demand, NODE, pools, Held(*usage))


@examples(50)
@given(slices=nodes, wanted=claims, usage=usages)
def test_asking_what_refuses_a_device_changes_nothing(slices: list[Any], wanted: Any, usage: list[Any]) -> None:
    """Other than taking it and giving it up."""
    demand = demand_of(wanted)
    release = release_rules(BY_REQUEST, counters_by_driver=False, admin_access_pays_counters=False)
    pools = pools_of(slices)
    state = ReleaseSearchState(demand, NodeView(NODE, pools, Held(*usage), None, release))
    options = [option for request in demand.claims[0].requests for option in request.options]
    for wanted_option in options:
        for location in range(len(pools.devices)):
            before = state.snapshot()
            try:
                answers = [state.exclusion(0, wanted_option, location) for _ in range(2)]
            except SearchEndedError:  # a derived attribute that fails
                continue
            assert state.snapshot() == before
            assert answers[0] == answers[1] == state.try_pick(0, wanted_option, location)
