"""Soft alignment: devices that agree are chosen where they can be, and no pod waits because they cannot."""

from typing import Any

import msgspec
import pytest
from dra_extender.allocator.demand.alignment import PreferencesError, meets, read_preferences
from dra_extender.allocator.demand.build import build_demand
from dra_extender.allocator.demand.demand import Demand, reads_of
from dra_extender.allocator.pools.pools import DeviceOrder
from dra_extender.allocator.rules.node_view import NodeView
from dra_extender.allocator.state.features import Features
from dra_extender.allocator.state.reasons import NoFit
from dra_extender.cel.program import ProgramCache
from dra_extender.model.allocation import Placement
from dra_extender.model.device_class import device_class_from
from hypothesis import given
from hypothesis import strategies as st

from tests.support.allocator.building import (
    NODE,
    Held,
    Json,
    allocate,
    ask,
    claim_of,
    demand_of,
    either,
    every,
    exactly,
    held,
    named,
    picks,
    pools_of,
    preferring,
    slice_of,
)
from tests.support.allocator.generated import claims, nodes, usages
from tests.support.examples import examples

ROOT, SIDE = "gpu.example.com/root", "gpu.example.com/side"


def placed(name: str, root: str, side: int = 0) -> Json:
    return {"name": name, "attributes": {"root": {"string": root}, "side": {"int": side}}}


NODE_OF_FOUR = slice_of(placed("a", "x", 0), placed("b", "y", 0), placed("c", "x", 1), placed("d", "y", 1))


@pytest.mark.parametrize("lists", [True, False])
@pytest.mark.parametrize(
    ("attributes", "chosen"),
    [((), ["a", "b"]), ((ROOT,), ["a", "c"]), ((SIDE,), ["a", "b"]), ((ROOT, SIDE), ["a", "c"])],
)
def test_devices_agree_in_the_attribute_that_is_preferred(
    attributes: tuple[str, ...], chosen: list[str], *, lists: bool
) -> None:
    config = [preferring(*attributes)] if attributes else []
    features = Features(list_type_attributes=lists)
    assert picks(ask([NODE_OF_FOUR], claim_of(exactly(2), config=config), features=features)) == [chosen]


def test_pod_gets_devices_that_do_not_agree_where_there_are_no_others() -> None:
    wanted = claim_of(exactly(2), config=[preferring(ROOT)])
    assert picks(ask([NODE_OF_FOUR], wanted, usage=[held("a"), held("b")])) == [["c", "d"]]
    assert picks(ask([NODE_OF_FOUR], claim_of(exactly(3), config=[preferring(ROOT)]))) == [["a", "b", "c"]]


def test_first_attribute_counts_more_than_the_second() -> None:
    usage = [held("a")]
    both = claim_of(exactly(2), config=[preferring(SIDE, ROOT)])
    assert picks(ask([NODE_OF_FOUR], both, usage=usage)) == [["c", "d"]]
    both = claim_of(exactly(2), config=[preferring(ROOT, SIDE)])
    assert picks(ask([NODE_OF_FOUR], both, usage=usage)) == [["b", "d"]]


def test_preference_is_about_the_requests_that_it_names() -> None:
    requests = (exactly(1, "p"), exactly(1, "q"), exactly(1, "r"))
    wanted = claim_of(*requests, config=[preferring(ROOT, requests=("p", "r"))])
    assert picks(ask([NODE_OF_FOUR], wanted)) == [["a", "b", "c"]]
    assert [len(claim.preferences) for claim in demand_of(claim_of(*requests)).claims] == [0]
    alone = claim_of(*requests, config=[preferring(ROOT, requests=("p",))])
    assert [claim.preferences for claim in demand_of(alone).claims] == [()]


def test_class_prefers_for_all_requests_that_use_it() -> None:
    spec = {"config": [{"opaque": preferring(ROOT)["opaque"]}]}
    classes = {"near": device_class_from({"metadata": {"name": "near"}, "spec": spec})}
    wanted = claim_of(*(exactly(1, name, deviceClassName="near") for name in ("p", "q")))
    demand = build_demand(named(wanted), classes, ProgramCache(), Features())
    assert isinstance(demand, Demand)
    assert picks(allocate(demand, NODE, pools_of([NODE_OF_FOUR]), Held())) == [["a", "c"]]


def test_preference_costs_no_better_alternative_of_a_request() -> None:
    only_y = f'device.attributes["{ROOT.partition("/")[0]}"].root == "y"'
    pair = either(
        exactly(1, expression='device.attributes["gpu.example.com"].root == "x"'), exactly(1, expression=only_y)
    )
    wanted = claim_of(exactly(1, "first", only_y), pair, config=[preferring(ROOT)])
    assert picks(ask([NODE_OF_FOUR], wanted)) == [["b", "a"]]


def test_hard_constraint_stays_beside_a_preference() -> None:
    wanted = claim_of(exactly(2), constraints=[{"matchAttribute": SIDE}], config=[preferring(ROOT)])
    assert picks(ask([NODE_OF_FOUR], wanted)) == [["a", "b"]]
    assert isinstance(ask([NODE_OF_FOUR], claim_of(exactly(3), constraints=[{"matchAttribute": SIDE}])), NoFit)


def test_request_with_mode_all_gets_all() -> None:
    assert picks(ask([NODE_OF_FOUR], claim_of(every(), config=[preferring(ROOT)]))) == [["a", "b", "c", "d"]]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        [],
        {"apiVersion": "dra-extender.io/v2", "kind": "DevicePreferences", "matchAttributes": [ROOT]},
        {"apiVersion": "dra-extender.io/v1", "kind": "Other", "matchAttributes": [ROOT]},
        {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": []},
        {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": ["root"]},
        {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": [ROOT], "x": 1},
        {"apiVersion": "dra-extender.io/v1", "kind": "DevicePreferences", "matchAttributes": ["a.b/c"] * 5},
    ],
)
def test_parameters_that_are_no_preferences_are_ignored(parameters: Any) -> None:
    config = [{"opaque": {"driver": "dra-extender.io", "parameters": parameters}}]
    assert picks(ask([NODE_OF_FOUR], claim_of(exactly(2), config=config))) == [["a", "b"]]


def test_parameters_that_nest_deep_are_no_preferences() -> None:
    deep = b'{"apiVersion":"dra-extender.io/v1","kind":"DevicePreferences","x":' + b"[" * 5_000 + b"]" * 5_000 + b"}"
    with pytest.raises(PreferencesError):
        read_preferences(deep)


def test_parameters_of_other_drivers_are_nobodys_business() -> None:
    entry = preferring(ROOT)
    entry["opaque"]["driver"] = "gpu.example.com"
    assert picks(ask([NODE_OF_FOUR], claim_of(exactly(2), config=[entry]))) == [["a", "b"]]


def test_preferred_attributes_decide_about_equivalent_nodes() -> None:
    assert reads_of(demand_of(claim_of(exactly(2), config=[preferring(ROOT)]))) == frozenset({ROOT})


@examples(150)
@given(
    slices=nodes,
    wanted=st.lists(claims, min_size=1, max_size=2),
    usage=usages,
    attributes=st.lists(
        st.sampled_from(["gpu.example.com/type", "gpu.example.com/numa", "x.example.com/none"]), max_size=3
    ),
)
def test_preference_costs_no_solution_and_adds_one_only_after_an_error(
    slices: list[Any], wanted: list[Any], usage: list[Any], attributes: list[str]
) -> None:
    plain, preferring_them = demand_of(*wanted), demand_of(*(with_preferences(each, attributes) for each in wanted))
    pools, taken = pools_of(slices), Held(*usage)
    first, second = allocate(plain, NODE, pools, taken), allocate(preferring_them, NODE, pools, taken)
    if isinstance(first, Placement) or first.verdict != "fatal":
        assert isinstance(first, Placement) is isinstance(second, Placement)
    assert allocate(preferring_them, NODE, pools, taken) == second
    if isinstance(first, NoFit) and isinstance(second, NoFit):
        assert first.rejections == second.rejections


def test_preference_may_avoid_what_ends_a_search_in_upstreams_order() -> None:
    """Mode All of the second claim meets its constraint, which is an error, unless the first claim has one of the devices."""
    on_one_side = every(expression='device.attributes["gpu.example.com"].side == 1')
    second = claim_of(either(on_one_side, exactly()), name="second", constraints=[{"distinctAttribute": SIDE}])
    plain, preferring_root = (claim_of(exactly(2), name="first", config=config) for config in ([], [preferring(ROOT)]))
    answer = ask([NODE_OF_FOUR], plain, second)
    assert isinstance(answer, NoFit)
    assert answer.verdict == "fatal"
    assert picks(ask([NODE_OF_FOUR], preferring_root, second)) == [["a", "c"], ["b"]]


def with_preferences(claim: Any, attributes: list[str]) -> Any:
    devices = claim.spec.devices
    config = claim_of(config=[preferring(*attributes)] if attributes else []).spec.devices.config
    spec = msgspec.structs.replace(claim.spec, devices=msgspec.structs.replace(devices, config=config))
    return msgspec.structs.replace(claim, spec=spec)


def test_devices_agree_only_if_all_have_the_attribute() -> None:
    (preference,) = demand_of(claim_of(exactly(2), config=[preferring(ROOT)])).claims[0].preferences
    assert meets(preference, [])
    assert not meets(preference, [None])


def test_the_order_of_devices_is_made_once_for_all_preferences() -> None:
    demand, pools = demand_of(claim_of(exactly(2), config=[preferring(ROOT, SIDE)])), pools_of([NODE_OF_FOUR])
    orders: list[DeviceOrder] = []

    def prefer(_: NodeView) -> DeviceOrder:
        orders.append(DeviceOrder.from_locations([3, 2, 1, 0]))
        return orders[-1]

    assert picks(allocate(demand, NODE, pools, Held(), find_order=prefer)) == [["d", "b"]]
    assert len(orders) == 1
