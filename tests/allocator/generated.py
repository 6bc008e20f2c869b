"""Random small nodes and claims for property tests."""

from typing import Any

from hypothesis import strategies as st

from tests.allocator.building import claim_of, consuming, counters_of, either, every, exactly, held, slice_of

NAMES = [f"d{index}" for index in range(6)]
_GROUPS = st.lists(st.sampled_from("ab"), unique=True, max_size=2)


@st.composite
def _device(draw: st.DrawFn, name: str) -> dict[str, Any]:
    attributes = {"k": {"int": draw(st.integers(0, 2))}} if draw(st.booleans()) else {}
    if draw(st.booleans()):
        return {"name": name, "attributes": attributes}
    amount, counter_set = draw(st.integers(0, 3)), draw(st.sampled_from(["set", "set", "other"]))
    return consuming(name, *draw(_GROUPS), amount=amount, counter_set=counter_set, attributes=attributes)


def _request(count: int | None, admin: bool, number: int) -> dict[str, Any]:
    more: dict[str, Any] = {"adminAccess": True} if admin else {}
    return every(f"r{number}", **more) if count is None else exactly(count, f"r{number}", **more)


_counts = st.one_of(st.integers(0, 3), st.integers(1, 2), st.none())
_alternatives = st.builds(
    lambda counts, number: either(*(_request(count, False, 0) for count in counts), name=f"p{number}"),
    st.lists(_counts, min_size=1, max_size=3),
    st.integers(0, 99),
)
_requests = st.one_of(
    st.builds(_request, _counts, st.just(False), st.integers(0, 99)),
    st.builds(_request, _counts, st.booleans(), st.integers(0, 99)),
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
"""Slices of one pool with six devices, some drawing on counters, with or without groups."""

claims = st.builds(
    lambda found, limits: claim_of(*found, constraints=limits), st.lists(_requests, max_size=3), _constraints
)
usages = st.lists(st.sampled_from([*(held(name) for name in NAMES), held("d1", admin=True)]), max_size=2)
