from dra_extender.model.compressed import FEW, CompressedList, packed
from dra_extender.model.pod import ContainerRequests, PodClaimStatus, ResourceRequest
from hypothesis import given
from hypothesis import strategies as st

STATUSES = st.lists(
    st.builds(PodClaimStatus, name=st.text(max_size=5), resource_claim_name=st.none() | st.text(max_size=5)),
    max_size=3 * FEW,
).map(tuple)


@given(STATUSES, STATUSES)
def test_packed_values_are_read_as_they_were(
    values: tuple[PodClaimStatus, ...], other: tuple[PodClaimStatus, ...]
) -> None:
    kept = packed(values, PodClaimStatus)
    assert isinstance(kept, CompressedList) is (len(values) > FEW)
    assert (tuple(kept), len(kept), bool(kept)) == (values, len(values), bool(values))
    assert (kept == packed(other, PodClaimStatus)) is (values == other)
    again = packed(tuple(values), PodClaimStatus)
    assert kept == again
    assert hash(kept) == hash(again)


def test_packed_requests_of_containers_are_read_as_they_were() -> None:
    asked = ResourceRequest(resource="a.io/b", amount=-1, place=3)
    values = tuple(
        ContainerRequests(index=number, name=f"c{number}", long_lived=bool(number % 2), requests=(asked,))
        for number in range(100)
    )
    kept = packed(values, ContainerRequests)
    assert tuple(kept) == values
    assert kept[7] == values[7]
    assert kept[1:3] == values[1:3]


def test_long_list_is_read_as_it_was_and_takes_less_than_its_names() -> None:
    values = tuple(f"example.com/k{number}" for number in range(10_000))
    kept = packed(values, str)
    assert isinstance(kept, CompressedList)
    assert tuple(kept) == values
    assert kept == packed(values, str)
    assert kept != packed(values[:-1], str)
    assert len(kept._data) < sum(map(len, values)) / 2
