"""What is read from API objects, and what is said when it cannot be read."""

from typing import Any

import msgspec
import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.cel.values.quantity import NANO
from dra_extender.model.api_json import ModelError
from dra_extender.model.compressed import FEW, CompressedList, packed
from dra_extender.model.device_class import device_class_from
from dra_extender.model.metadata import seconds_of, split_key, time_text, version_number
from dra_extender.model.node import node_from, read_node
from dra_extender.model.pod import ContainerRequests, PodClaimStatus, ResourceRequest, read_pod
from dra_extender.model.pod_group import read_pod_group
from dra_extender.model.resource_claim import read_claim
from dra_extender.model.resource_slice import SliceReader
from hypothesis import given
from hypothesis import strategies as st

from tests.support.model.reading import pod_from

SLICE: dict[str, Any] = {
    "metadata": {"name": "s", "uid": "u", "resourceVersion": "7", "managedFields": [{"any": "thing"}]},
    "spec": {
        "driver": "gpu.example.com",
        "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
        "nodeName": "n",
        "unknown": {"field": 1},
        "devices": [
            {
                "name": name,
                "attributes": {"type": {"string": "mig"}, "index": {"int": index}, "links": {"strings": ["a", "b"]}},
                "capacity": {
                    "memory": {"value": "40Gi", "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi"}}}
                },
                "consumesCounters": [
                    {
                        "counterSet": "set",
                        "counters": {"units": {"value": "500m"}},
                        "compatibilityGroups": ["mig"],
                    }
                ],
                "taints": [{"key": "k", "effect": "NoSchedule"}],
                "allowMultipleAllocations": True,
            }
            for index, name in enumerate(("a", "b"))
        ],
        "sharedCounters": [{"name": "set", "counters": {"units": {"value": "4"}}}],
    },
}


def test_a_slice_is_read_into_exact_amounts() -> None:
    found = SliceReader().read(msgspec.json.encode(SLICE))

    assert (found.pool_id, found.generation, found.slice_count, found.node_name) == (
        ("gpu.example.com", "p"),
        3,
        2,
        "n",
    )
    assert found.counter_sets[0].counters == (("units", 4 * NANO),)
    device = found.devices[0]
    assert device.consumes_counters[0].counters == (("units", NANO // 2),)
    assert device.consumes_counters[0].compatibility_groups == ("mig",)
    assert dict(device.capacity)["memory"].value == 40 * 2**30 * NANO
    assert device.allow_multiple_allocations


def test_equal_parts_of_devices_are_shared() -> None:
    first, second = SliceReader().convert(SLICE).devices

    assert first.consumes_counters is second.consumes_counters
    assert first.capacity is second.capacity
    assert dict(first.attributes)["type"] is dict(second.attributes)["type"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"driver": 5}, r"ResourceSlice: Expected `str`, got `int` - at `\$\.spec\.driver`"),
        ({"devices": [{}]}, r"ResourceSlice: Object missing required field `name` - at `\$\.spec\.devices\[0\]`"),
        ({"sharedCounters": [{"name": "s", "counters": {"c": {"value": "four"}}}]}, r"ResourceSlice s: .*four"),
    ],
)
def test_an_unreadable_slice_is_explained(change: dict[str, Any], text: str) -> None:
    with pytest.raises(ModelError, match=text):
        SliceReader().convert({**SLICE, "spec": {**SLICE["spec"], **change}})


@pytest.mark.parametrize("read", [SliceReader().read, read_claim, read_pod, read_node, read_pod_group])
@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"metadata": 1}', b"\xff"])
def test_what_is_no_object_is_refused_with_a_sentence(read: Any, data: bytes) -> None:
    with pytest.raises(ModelError):
        read(data)


def test_lists_that_an_api_server_spells_as_null_are_read() -> None:
    """A claim may ask for nothing, and a driver may give data without conditions."""
    body = b'{"spec":{"devices":{"requests":null}},"status":{"devices":[{"driver":"d","conditions":null}]}}'
    claim = read_claim(body)
    assert not claim.spec.devices.requests
    assert not claim.status.devices[0].conditions


def test_a_pod_keeps_what_decisions_need() -> None:
    pod = pod_from(
        {
            "metadata": {"name": "p", "namespace": "ns", "uid": "u", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "nodeName": "n",
                "schedulerName": "s",
                "schedulingGroup": {"podGroupName": "g"},
                "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
                "initContainers": [{"name": "i", "resources": {"limits": {"example.com/nic": 1}}}],
                "containers": [
                    {
                        "name": "c",
                        "resources": {"requests": {"cpu": "1", "example.com/gpu": "2", "example.com/no": "0"}},
                    },
                    {"name": "d"},
                ],
            },
            "status": {"phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x"}]},
        }
    )

    assert (pod.node_name, pod.pod_group, pod.deleting, pod.finished) == ("n", "g", True, False)
    assert pod.extended_resources == ("example.com/gpu", "example.com/nic")
    assert pod.needs_devices
    assert pod.claim_statuses[0].resource_claim_name == "x"


def test_a_node_lists_the_extended_resources_it_has() -> None:
    node = node_from(
        {"metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "4", "x.io/gpu": "2", "x.io/no": "0"}}}
    )

    assert node.extended_resources == {"x.io/gpu"}


def test_a_class_backs_its_explicit_and_its_implicit_resource() -> None:
    found = device_class_from({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "x.io/gpu"}})

    assert found.extended_resources == ("deviceclass.resource.kubernetes.io/gpu", "x.io/gpu")


def test_the_summary_of_a_rejection_is_constant_and_the_text_has_the_details() -> None:
    rejection = Rejection(code=Code.GROUPS, claim="gpu", request="req", device="d", detail="[mig] against [vgpu]")
    reason = 'claim "gpu", request "req": compatibility groups in conflict'

    assert rejection.summary == f"node(s): {reason}"
    assert rejection.text == f"{reason} (d): [mig] against [vgpu]"


def test_resource_versions_compare_as_numbers() -> None:
    assert version_number("100") > version_number("99")
    assert version_number("") == version_number("abc") == 0


@pytest.mark.parametrize("text", ["\u00b2", "\u0663", "9" * 21, "9" * 5_000, "-1", "1_0", " 1"])
def test_what_is_no_resource_version_is_none_and_raises_nothing(text: str) -> None:
    assert version_number(text) == 0


def test_time_is_written_as_the_api_does_and_read_again() -> None:
    assert time_text(1_700_000_000.9) == "2023-11-14T22:13:20Z"
    assert seconds_of(time_text(1_700_000_000.9)) == 1_700_000_000


@pytest.mark.parametrize("seconds", [1e30, float("inf"), -1e15])
def test_time_that_no_calendar_has_is_written_as_a_number_and_is_none_when_read(seconds: float) -> None:
    assert time_text(seconds) == f"at {seconds:.0f} s"
    assert seconds_of(time_text(seconds)) is None


@pytest.mark.parametrize(
    ("key", "parts"),
    [("ml/train", ("ml", "train")), ("train", ("", "train")), ("ml/", ("ml", "")), ("/train", ("", "train"))],
)
def test_key_without_a_slash_has_no_namespace(key: str, parts: tuple[str, str]) -> None:
    assert split_key(key) == parts


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
