"""Random small nodes and claims for property tests."""

from typing import Any

from dra_extender.cel.values.quantity import NANO
from hypothesis import strategies as st

from tests.support.allocator.building import claim_of, consuming, counters_of, either, every, exactly, held, slice_of

NAMES = [f"d{index}" for index in range(6)]
_GROUPS = st.lists(st.sampled_from("ab"), unique=True, max_size=2)
_POLICIES = st.sampled_from([{}, {}, {"requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}])


@st.composite
def _device(draw: st.DrawFn, name: str) -> dict[str, Any]:
    more: dict[str, Any] = {"attributes": {"k": {"int": draw(st.integers(0, 2))}} if draw(st.booleans()) else {}}
    if draw(st.booleans()):
        more["allowMultipleAllocations"] = True
    if draw(st.booleans()):
        more["capacity"] = {"m": {"value": str(draw(st.integers(1, 4))), **draw(_POLICIES)}}
    if draw(st.booleans()):
        return {"name": name, **more}
    amount, counter_set = draw(st.integers(0, 3)), draw(st.sampled_from(["set", "set", "other"]))
    return consuming(name, *draw(_GROUPS), amount=amount, counter_set=counter_set, **more)


def _request(count: int | None, admin: bool, number: int, amount: int | None = None) -> dict[str, Any]:
    more: dict[str, Any] = {"adminAccess": True} if admin else {}
    if number % 4 == 0:
        expression = 'device.attributes["gpu.example.com"].?k.orValue(5) % 2'
        more["derivedAttributes"] = [{"name": "gpu.example.com/k", "expression": expression}]
    if number % 16 == 1:
        expression = 'device.attributes["gpu.example.com"].k'
        more["derivedAttributes"] = [{"name": "gpu.example.com/k", "expression": expression}]
    if amount is not None:
        more["capacity"] = {"requests": {"m": str(amount)}}
    return every(f"r{number}", **more) if count is None else exactly(count, f"r{number}", **more)


_counts = st.one_of(st.integers(0, 3), st.integers(1, 2), st.none())
_amounts = st.one_of(st.none(), st.none(), st.integers(0, 3))
_alternatives = st.builds(
    lambda options, number: either(*(_request(count, False, 0, each) for count, each in options), name=f"p{number}"),
    st.lists(st.tuples(_counts, _amounts), min_size=1, max_size=3),
    st.integers(0, 99),
)
_requests = st.one_of(
    st.builds(_request, _counts, st.just(False), st.integers(0, 99), _amounts),
    st.builds(_request, _counts, st.booleans(), st.integers(0, 99), _amounts),
    _alternatives,
)
_constraints = st.sampled_from(
    [[], [], [{"matchAttribute": "gpu.example.com/k"}], [{"distinctAttribute": "gpu.example.com/k"}]]
)

nodes = st.tuples(*(_device(name) for name in NAMES)).map(
    lambda devices: [
        counters_of(set=5, other=2, count=3),
        slice_of(*devices[:3], name="s1", count=3),
        slice_of(*devices[3:], name="s2", count=3, allNodes=True),
    ]
)
"""Slices of one pool with six devices, some drawing on counters, with or without groups, some shareable, some with a capacity."""

claims = st.builds(
    lambda found, limits: claim_of(*found, constraints=limits), st.lists(_requests, max_size=3), _constraints
)
usages = st.lists(
    st.sampled_from(
        [
            *(held(name) for name in NAMES),
            *(held(name, share_id="x", consumed_capacity=(("m", NANO),)) for name in NAMES),
            held("d1", admin=True),
            held("d2", share_id="y"),
        ]
    ),
    max_size=3,
)
