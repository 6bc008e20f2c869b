"""Which requests a claim for extended resources has, and which container uses which of them: upstream's rules, one by one."""

from collections.abc import Mapping, Sequence

import pytest
from dra_extender.model.pod import NO_COUNT, ContainerRequests
from dra_extender.model.resource_claim import DeviceRequest
from dra_extender.scheduling.claims.extended_need import (
    MOST_PLACES,
    RequestMapping,
    extended_requests,
    why_too_much,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.support.model.reading import pod_from

GPU, NIC = "example.com/gpu", "example.com/nic"
CLASSES = {GPU: "gpu-class", NIC: "nic-class"}
Container = tuple[str, Mapping[str, object]]
Asked = tuple[tuple[DeviceRequest, ...], tuple[RequestMapping, ...]]


def asking(
    main: list[Container], init: list[Container] | None = None, sidecars: tuple[str, ...] = ()
) -> Sequence[ContainerRequests]:
    def container(each: Container) -> dict[str, object]:
        name, requests = each
        restart = {"restartPolicy": "Always"} if name in sidecars else {}
        return {"name": name, "resources": {"requests": dict(requests)}, **restart}

    spec = {"containers": list(map(container, main)), "initContainers": list(map(container, init or []))}
    return pod_from({"metadata": {"name": "p"}, "spec": spec}).extended_requests


def asked(main: list[Container], init: list[Container] | None = None, sidecars: tuple[str, ...] = ()) -> Asked:
    return extended_requests(asking(main, init, sidecars), CLASSES)


def counts(found: Asked) -> dict[str, int]:
    return {each.name: each.exactly.count for each in found[0] if each.exactly is not None}


def uses(found: Asked) -> list[tuple[str, str]]:
    return [(each.container, each.request) for each in found[1]]


def test_a_request_names_container_and_place_among_all_requests_of_the_container() -> None:
    found = asked([("a", {"cpu": "1"}), ("b", {"cpu": "1", "memory": "1Gi", GPU: "2", NIC: "1"})])
    assert counts(found) == {"container-1-request-1": 2, "container-1-request-2": 1}
    body = found[0][0].exactly
    assert body is not None
    assert (body.device_class_name, body.allocation_mode) == ("gpu-class", "ExactCount")
    assert found[1] == (("b", GPU, "container-1-request-1"), ("b", NIC, "container-1-request-2"))


@pytest.mark.parametrize(
    ("main", "init", "counted", "used"),
    [
        pytest.param(
            [("a", {GPU: "1"}), ("b", {GPU: "3"})],
            [],
            {"container-0-request-0": 1, "container-1-request-0": 3},
            [("a", "container-0-request-0"), ("b", "container-1-request-0")],
            id="containers-side-by-side-have-devices-of-their-own",
        ),
        pytest.param(
            [("main", {GPU: "2"})],
            [("first", {GPU: "1"})],
            {"container-1-request-0": 2},
            [("main", "container-1-request-0"), ("first", "container-1-request-0")],
            id="an-init-container-uses-devices-of-later-containers",
        ),
        pytest.param(
            [("main", {GPU: "1"})],
            [("first", {GPU: "3"})],
            {"container-0-request-0": 2, "container-1-request-0": 1},
            [
                ("main", "container-1-request-0"),
                ("first", "container-1-request-0"),
                ("first", "container-0-request-0"),
            ],
            id="an-init-container-that-needs-more-has-the-rest-of-its-own",
        ),
        pytest.param(
            [("main", {})],
            [("a", {GPU: "1"}), ("b", {GPU: "4"}), ("c", {GPU: "4"})],
            {"container-1-request-0": 4},
            [(name, "container-1-request-0") for name in ("a", "b", "c")],
            id="init-containers-share-the-largest-of-their-own-requests",
        ),
        pytest.param(
            [("main", {})],
            [("a", {GPU: "1"}), ("side", {GPU: "1"}), ("z", {GPU: "1"})],
            {"container-1-request-0": 1, "container-2-request-0": 1},
            [("side", "container-1-request-0"), ("a", "container-1-request-0"), ("z", "container-2-request-0")],
            id="only-init-containers-before-a-sidecar-use-its-devices",
        ),
    ],
)
def test_containers_use_requests_as_upstream_has_it(
    main: list[Container], init: list[Container], counted: dict[str, int], used: list[tuple[str, str]]
) -> None:
    found = asked(main, init, sidecars=("side",))
    assert (counts(found), uses(found)) == (counted, used)


def test_requests_are_sorted_as_text_and_mappings_by_resource() -> None:
    found = asked([(f"c{index}", {GPU: "1", NIC: "1"}) for index in range(11)])
    assert [each.name for each in found[0]] == sorted(each.name for each in found[0])
    assert found[0][4].name == "container-10-request-0"
    assert [each.resource for each in found[1]] == [GPU] * 11 + [NIC] * 11


def test_resources_without_class_and_amounts_of_zero_are_left_out() -> None:
    found = asked([("a", {"other.com/x": "1", GPU: "0"})])
    assert found == ((), ())


@pytest.mark.parametrize(
    ("amount", "count"), [("3", 3), ("1k", 1000), ("500m", NO_COUNT), (2, 2), ("nonsense", NO_COUNT)]
)
def test_only_whole_numbers_are_counted(amount: object, count: int) -> None:
    spec = {"containers": [{"name": "a", "resources": {"limits": {GPU: amount}}}]}
    pod = pod_from({"metadata": {"name": "p"}, "spec": spec})
    assert [each.amount for each in pod.extended_requests[0].requests] == [count]


@given(
    st.lists(st.integers(0, 14), max_size=4),
    st.lists(st.tuples(st.integers(0, 14), st.booleans()), max_size=4),
)
def test_every_container_has_what_it_asks_for_and_no_two_that_run_together_share(
    main: list[int], init: list[tuple[int, bool]]
) -> None:
    sidecars = tuple(f"i{index}" for index, (_, sidecar) in enumerate(init) if sidecar)
    containers: tuple[list[Container], list[Container], tuple[str, ...]] = (
        [(f"m{index}", {GPU: str(amount)}) for index, amount in enumerate(main)],
        [(f"i{index}", {GPU: str(amount)}) for index, (amount, _) in enumerate(init)],
        sidecars,
    )
    found = asked(*containers)
    sizes, mapped = counts(found), uses(found)
    devices = sum(sizes.values())
    told = f"asks for {devices} devices, a claim may have 32" if devices > 32 else ""
    assert why_too_much(asking(*containers), CLASSES) == told
    wanted = {f"m{index}": amount for index, amount in enumerate(main)}
    wanted |= {f"i{index}": amount for index, (amount, _) in enumerate(init)}
    for name, amount in wanted.items():
        own = [request for container, request in mapped if container == name]
        assert len(own) == len(set(own))
        assert sum(sizes[request] for request in own) >= amount
    lasting = [request for name, request in mapped if name.startswith("m") or name in sidecars]
    assert len(lasting) == len(set(lasting))


def test_a_pod_that_asks_in_more_places_than_are_served_is_told_so() -> None:
    init: list[Container] = [(f"i{index}", {GPU: "1"}) for index in range(MOST_PLACES)]

    assert why_too_much(asking([("main", {})], init), CLASSES) == ""
    assert (
        why_too_much(asking([("main", {GPU: "1"})], init), CLASSES)
        == f"asks for devices in {MOST_PLACES + 1} places of its containers, {MOST_PLACES} are served"
    )
