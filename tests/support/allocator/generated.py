"""Random small nodes and claims for property tests."""

from collections.abc import Sequence
from math import prod
from typing import Any

from dra_extender.cel.values.quantity import NANO
from dra_extender.model.resource_slice import ResourceSlice
from hypothesis import strategies as st

from tests.support.allocator.building import claim_of, consuming, counters_of, either, every, exactly, held, slice_of

NAMES = [f"d{index}" for index in range(6)]
_POLICY = {"requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}


def _one_of_each(*parts: Sequence[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Choose from each of the parts, by a single number: Hypothesis takes as long for it as for one choice."""

    def chosen(number: int) -> tuple[Any, ...]:
        found = []
        for part in parts:
            number, index = divmod(number, len(part))
            found.append(part[index])
        return tuple(found)

    return st.integers(0, prod(map(len, parts)) - 1).map(chosen)


_bodies = _one_of_each(
    [None, None, None, 0, 1, 2], [False, True], [None, None, None, None, 1, 2, 3, 4], [{}, {}, _POLICY]
)
"""Of a device: attribute k, whether it is shareable, its capacity and policy."""
_drawn = _one_of_each([None, None, None, None, 0, 1, 2, 3], ["set", "set", "other"], ["", "a", "b", "ab"])
"""What a device draws, from which counter set, and its groups there."""


def _device(name: str, body: tuple[Any, ...], drawn: tuple[Any, ...]) -> dict[str, Any]:
    (k, shareable, capacity, policy), (amount, counter_set, groups) = body, drawn
    more: dict[str, Any] = {} if k is None else {"attributes": {"k": {"int": k}}}
    if shareable:
        more["allowMultipleAllocations"] = True
    if capacity is not None:
        more["capacity"] = {"m": {"value": str(capacity), **policy}}
    if amount is None:
        return {"name": name, **more}
    return consuming(name, *groups, amount=amount, counter_set=counter_set, **more)


def _request(count: int | None, amount: int | None, number: int = 0, admin: bool = False) -> dict[str, Any]:
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


_COUNTS = [1, 1, 2, 2, 0, 1, 2, 3, None, None, None, None]
_AMOUNTS = [None, None, None, None, 0, 1, 2, 3]
_plain = _one_of_each(_COUNTS, _AMOUNTS, range(100), [False, False, False, True]).map(lambda each: _request(*each))
_alternatives = st.builds(
    lambda options, number: either(*(_request(*each) for each in options), name=f"p{number}"),
    st.lists(_one_of_each(_COUNTS, _AMOUNTS), min_size=1, max_size=3),
    st.integers(0, 99),
)
_requests = st.one_of(_plain, _plain, _alternatives)
_constraints = st.sampled_from(
    [[], [], [{"matchAttribute": "gpu.example.com/k"}], [{"distinctAttribute": "gpu.example.com/k"}]]
)


def _slices(bodies: Sequence[Any], drawn: Sequence[Any], chosen: Sequence[int]) -> list[ResourceSlice]:
    """Devices of few kinds, so that some are equal, or equal but for what they draw."""
    devices = [
        _device(name, bodies[body], drawn[drawing])
        for name, body, drawing in zip(NAMES, chosen[::2], chosen[1::2], strict=True)
    ]
    return [
        counters_of(set=5, other=2, count=3),
        slice_of(*devices[:3], name="s1", count=3),
        slice_of(*devices[3:], name="s2", count=3, allNodes=True),
    ]


nodes = st.builds(
    _slices,
    st.tuples(_bodies, _bodies),
    st.tuples(_drawn, _drawn, _drawn),
    _one_of_each(*[range(2), range(3)] * len(NAMES)),
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
