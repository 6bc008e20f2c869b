"""A redacted snapshot: the answers about it are those about the cluster with other names, and no name of the cluster is in it."""

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from zlib import crc32

import msgspec
import pytest
from dra_extender.cel.analysis.renaming import NamesOfExpressions, renamed
from dra_extender.inspection.near_names import is_slip, slip_contexts
from dra_extender.inspection.objects import ClusterObjects, MissingKind, keep_fields
from dra_extender.inspection.redaction.names import OrderedNames, UnorderableNameError
from dra_extender.inspection.redaction.redact import redacted
from dra_extender.inspection.snapshot_file import read_snapshot, write_snapshot
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.inspection.why.reported import reported_reasons
from dra_extender.inspection.why.why import why
from dra_extender.model.allocation import AllocationResult, DeviceHolding
from dra_extender.model.allocation_snapshot import SNAPSHOT_ANNOTATION, encode_snapshot, holdings_of
from dra_extender.model.device import CounterConsumption
from dra_extender.model.fields import ListOf, MapOf, Mark, Record, Shape, fields_of
from dra_extender.model.objects import LABELLED, WATCHED
from dra_extender.model.resource_claim import read_head
from hypothesis import given
from hypothesis import strategies as st

from tests.controlplane.objects import (
    DRIVER,
    Object,
    consumption,
    counter_set,
    device,
    device_class,
    node,
    pod,
    request,
    resource_claim,
)
from tests.inspection.why import test_combined_causes, test_constructed_causes
from tests.support.allocator.building import preferring
from tests.support.examples import examples
from tests.support.inspection.example_snapshot import example
from tests.support.inspection.made_cluster import CREATED, NAMESPACE, MadeCluster
from tests.support.inspection.renaming import NamesPutBack, answers, redacted_with, timeless_view
from tests.support.model.described import MADE, objects

SECRET = "s3cret"  # noqa: S105 - planted to be looked for
LABELS = st.text("abz09-", min_size=1, max_size=5).map(lambda text: f"x{text}y")
SELECTORS = (
    'device.attributes["{driver}"].model == "{value}"',
    'device.attributes["{driver}"].model in ["{value}", "other"]',
    'device.attributes["{driver}"].?model.orValue("").startsWith("{value}")',
    '"model" in device.attributes["{driver}"] && device.capacity["{driver}"].memory.compareTo(quantity("40Gi")) >= 0',
    'device.attributes["{driver}"].version.isGreaterThan(semver("1.2.0"))',
    'device.driver == "{driver}"',
)


@st.composite
def clusters(draw: st.DrawFn) -> MadeCluster:
    """Nodes, devices that draw on counters, with attributes and taints, and pods that have them or wait."""
    made = MadeCluster()
    names = draw(st.lists(LABELS, min_size=2, max_size=5, unique=True))
    driver = f"{draw(LABELS)}.example.com"
    values = draw(st.lists(LABELS, min_size=2, max_size=3, unique=True))
    for each in names:
        made.add(node(each, labels={"room": draw(st.sampled_from(values))}))
    expression = draw(st.sampled_from(SELECTORS)).format(driver=driver, value=values[0])
    made.add(device_class("all", f'device.driver == "{driver}"'), device_class("some", expression))
    places = []
    for each in names:
        devices = [_device(draw, f"{draw(LABELS)}{index}", values) for index in range(draw(st.integers(1, 3)))]
        sets = [counter_set("set", slots="4")]
        made.partitions(each, sets, devices)
        for item in made.objects["resourceslices"][-2:]:
            item["spec"]["driver"] = driver
        places += [(each, item["name"]) for item in devices]
    for index, (place, held) in enumerate(draw(st.lists(st.sampled_from(places), max_size=3, unique=True))):
        made.running(f"{draw(LABELS)}{index}", place, held, request("r", "all"), driver=driver)
    for index in range(draw(st.integers(1, 3))):
        own = (expression,) if draw(st.booleans()) else ()
        wanted = request("r", draw(st.sampled_from(["all", "some"])), *own, count=draw(st.integers(1, 2)))
        made.pod(f"{draw(LABELS)}{index}", wanted)
    return made


def _device(draw: st.DrawFn, name: str, values: list[str]) -> Object:
    attributes: dict[str, str | int | bool] = {"model": draw(st.sampled_from(values)), "size": draw(st.integers(1, 4))}
    groups = draw(st.sampled_from([[], ["mig"], ["vgpu"]]))
    found = device(
        name,
        attributes=attributes,
        capacity={"memory": draw(st.sampled_from(["40Gi", "80Gi"]))},
        consumes=[consumption("set", groups=groups, slots=draw(st.sampled_from(["1", "3"])))],
    )
    found["attributes"]["version"] = {"version": draw(st.sampled_from(["1.0.0", "1.10.0", "2.0.0-rc.1"]))}
    if draw(st.booleans()):
        found["taints"] = [{"key": "example.com/broken", "value": values[0], "effect": "NoSchedule"}]
    return found


@given(clusters(), st.integers(0, 1000))
@examples(25)
def test_answers_about_a_redacted_cluster_are_those_about_the_cluster_with_other_names(
    made: MadeCluster, seed: int
) -> None:
    objects = made.cluster()
    done = redacted_with(objects, seed)
    back = NamesPutBack(done)
    assert [back.into(each) for each in answers(done.objects)] == answers(objects)


def test_uid_of_a_pod_that_waits_keeps_its_checksum_which_decides_where_a_filter_call_begins() -> None:
    objects = example()
    redacted_pods = redacted_with(objects).objects.of_kind("pods")
    uids = [
        [msgspec.json.decode(each)["metadata"]["uid"] for each in pods]
        for pods in (objects.of_kind("pods"), redacted_pods)
    ]
    waiting = [index for index, each in enumerate(objects.of_kind("pods")) if b'"nodeName"' not in each]
    assert len(waiting) > 5
    assert [crc32(uids[0][index].encode()) for index in waiting] == [
        crc32(uids[1][index].encode()) for index in waiting
    ]


def test_example_is_answered_alike_with_and_without_its_names() -> None:
    objects = example()
    done = redacted_with(objects)
    back = NamesPutBack(done)
    assert [back.into(each) for each in answers(done.objects)] == answers(objects)
    assert done.kept_names == ()


NEXT_DEPENDS_ON_A_WORD_OF_THE_API = test_constructed_causes.attribute_with_its_type_behind_it
CAUSES = [
    build
    for build in (*test_constructed_causes.CASES, *test_combined_causes.CASES)
    if build is not NEXT_DEPENDS_ON_A_WORD_OF_THE_API
]


@pytest.mark.parametrize("build", CAUSES, ids=lambda build: build.__name__)
def test_cause_and_next_step_are_the_same_of_a_redacted_cluster(build: Callable[[MadeCluster], None]) -> None:
    """Misspelt names included: which name was meant is known without the names."""
    made = test_constructed_causes.cluster("n1")
    build(made)
    made.add(pod("seen", NAMESPACE, nodeName="n1"))
    objects = made.cluster()
    done = redacted_with(objects)
    back = NamesPutBack(done)

    found = [
        why(timeless_view(cluster), *map(rename, (NAMESPACE, "train")))
        for cluster, rename in ((objects, str), (done.objects, done.names.text))
    ]

    causes = [
        [
            (branch.claim, branch.request, reason.nodes, reason.code)
            for branch in report.branches
            for reason in branch.reasons
        ]
        for report in found
    ]
    steps = [[msgspec.json.encode(step).decode() for step in report.next] for report in found]
    assert back.into(str(causes[1])) == str(causes[0])
    assert [back.into(step) for step in steps[1]] == steps[0]


def test_claim_of_an_extended_resource_is_found_by_its_place_in_the_redacted_pod() -> None:
    made, name = MadeCluster(), "container-0-request-1"
    made.nodes("n1", "n2")
    made.gpus("n1", device("gpu-0"))
    made.add(device_class("backed", extendedResourceName="example.com/gpu"))
    made.running("train", "n1", "gpu-0", request(name, "backed"))
    made.objects["pods"].pop()
    made.add(pod("train", NAMESPACE, cpu="0", extended={"example.com/gpu": "1"}))
    claim, owner = made.objects["resourceclaims"][-1], made.objects["pods"][-1]["metadata"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "train", "uid": owner["uid"], "controller": True}
    annotations = {"resource.kubernetes.io/extended-resource-claim": "true"}
    claim["metadata"].update(ownerReferences=[reference], annotations=annotations)
    claim["status"]["reservedFor"] = [{"resource": "pods", "name": "train", "uid": owner["uid"]}]
    done = redacted_with(made.cluster())
    assert name.encode() in done.objects.of_kind("resourceclaims")[-1]
    back = NamesPutBack(done)
    assert [back.into(each) for each in answers(done.objects)] == answers(made.cluster())


def test_what_could_not_be_read_is_the_same_of_a_redacted_cluster() -> None:
    """Kinds of one namespace alone, and a kind for which no right is missing."""
    objects = example()
    namespace = min(msgspec.json.decode(each)["metadata"]["namespace"] for each in objects.of_kind("pods"))
    missing = (
        MissingKind(kind="nodes", reason="403 Forbidden: of anna"),
        MissingKind(kind="pods", reason="403 Forbidden: of anna", namespace=namespace),
        MissingKind(kind="resourceslices", reason="500: etcd", forbidden=False),
        MissingKind(kind="podgroups", reason="404", served=False, forbidden=False),
    )
    origin = msgspec.structs.replace(objects.origin, missing=missing)
    done = redacted_with(ClusterObjects(origin, objects.by_kind))
    assert "anna" not in str(done.objects.origin)
    before = [msgspec.structs.replace(each, reason="redacted") for each in missing]
    before[1] = msgspec.structs.replace(before[1], namespace=done.names.text(namespace))
    assert list(done.objects.origin.missing) == before
    assert before[1].namespace != namespace


def test_no_name_of_the_example_is_left(tmp_path: Path) -> None:
    objects = example()
    file = tmp_path / "redacted.tar.gz"
    write_snapshot(redacted_with(objects).objects, file)
    data = gzip.decompress(file.read_bytes())
    names = {
        msgspec.json.decode(each)["metadata"][field]
        for found in objects.by_kind.values()
        for each in found
        for field in ("name", "uid", "namespace")
        if field in msgspec.json.decode(each)["metadata"]
    }
    names -= {name for name in names if len(name) < 4}
    assert len(names) > 200
    assert [name for name in sorted(names) if f'"{name}"'.encode() in data] == []


def planted(value: Any, path: str = "") -> None:
    """Put the secret into every text that an author of the object may choose."""
    if isinstance(value, dict):
        for key, each in list(value.items()):
            if isinstance(each, str):
                if key not in KEEPS_MEANING:
                    value[key] = f"{each}-{SECRET}" if each else SECRET
            else:
                planted(each, f"{path}.{key}")
    elif isinstance(value, list):
        for index, each in enumerate(value):
            if isinstance(each, str):
                value[index] = f"{each}-{SECRET}"
            else:
                planted(each, path)


KEEPS_MEANING = frozenset({"expression"})


@pytest.mark.parametrize("number", range(3))
def test_secrets_that_are_planted_in_every_text_are_nowhere_in_the_file(tmp_path: Path, number: int) -> None:
    """Names, UIDs, namespaces, labels, values of attributes, times, amounts, messages, reasons, words of the API: every one."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu", f'device.attributes["{DRIVER}"].model == "{SECRET}"', extendedResourceName=SECRET))
    made.gpus("n1", device("gpu-0", attributes={"model": SECRET, SECRET: "x"}, capacity={SECRET: "1Gi"}))
    made.partitions(
        "n1", [counter_set(SECRET, **{SECRET: "98"})], [device("p", consumes=[consumption(SECRET, groups=[SECRET])])]
    )
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu", f'device.attributes["{DRIVER}"].{SECRET} == "{SECRET}"'))
    opaque = {"opaque": {"driver": DRIVER, "parameters": {"token": SECRET}}}
    condition = {"type": SECRET, "status": SECRET, "reason": SECRET, "message": SECRET, "lastTransitionTime": SECRET}
    for found in made.objects.values():
        for item in found:
            metadata = item["metadata"]
            metadata["labels"] = {SECRET: SECRET, f"example.com/{SECRET}": SECRET}
            metadata["annotations"] = {
                SECRET: SECRET,
                "dra-extender.io/anything": SECRET,
                "dra-extender.io/device": SECRET,
            }
            metadata["annotations"] |= {"dra-extender.io/allocation-snapshot": f'{{"digest": "{SECRET}"}}'}
            metadata["finalizers"] = [SECRET]
            metadata["ownerReferences"] = [{"kind": SECRET, "name": SECRET, "uid": SECRET, "apiVersion": SECRET}]
            item.setdefault("status", {})["conditions"] = [condition]
            if number == 0:
                planted(item)
            if number == 1:
                item[SECRET] = {SECRET: SECRET}
                item.setdefault("spec", {})[SECRET] = [SECRET]
    for claim in made.objects["resourceclaims"]:
        claim["spec"]["devices"]["config"] = [{"requests": ["gpu"], **opaque}]
    file = tmp_path / "redacted.tar.gz"

    write_snapshot(redacted_with(made.cluster()).objects, file)

    assert SECRET.encode() not in gzip.decompress(file.read_bytes())
    assert SECRET.encode() not in file.read_bytes()


def test_values_that_a_function_looks_into_stay_and_are_listed() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu", f'device.attributes["{DRIVER}"].model.startsWith("A1")'))
    made.gpus("n1", device("gpu-0", attributes={"model": "A100", "serial": "4711"}))
    made.pod("train", request("gpu", "gpu"))
    done = redacted_with(made.cluster())
    assert done.kept_names == ("A1", "A100")
    assert [NamesPutBack(done).into(each) for each in answers(done.objects)] == answers(made.cluster())


def test_snapshot_of_an_allocation_still_belongs_to_it(tmp_path: Path) -> None:
    """What is frozen beside an allocation is bound to it by a digest of the names."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    sets = [counter_set("gpu-0", sm="98")]
    made.partitions(
        "n1", sets, [device(f"mig-{index}", consumes=[consumption("gpu-0", sm="42")]) for index in range(2)]
    )
    made.add(resource_claim("held", NAMESPACE, request("r", "gpu")))
    made.add(pod("old", NAMESPACE, claims={"gpu": "held"}))
    claim = made.objects["resourceclaims"][-1]
    result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": "mig-0"}
    claim["status"] = {"allocation": {"devices": {"results": [result]}}}
    claim["metadata"]["annotations"] = {"dra-extender.io/allocation-snapshot": frozen(claim)}
    objects = made.cluster()
    done = redacted_with(objects)
    file = tmp_path / "redacted.tar.gz"
    write_snapshot(done.objects, file)
    here, there = answers(objects), [NamesPutBack(done).into(each) for each in answers(read_snapshot(file))]
    assert here == there
    assert '"drift":["gpu-0"]' in here[-1]


def frozen(claim: Object) -> str:
    """What the service would have frozen when the devices drew other amounts than now."""
    from dra_extender.model.allocation import AllocationResult, DeviceHolding  # noqa: PLC0415
    from dra_extender.model.allocation_snapshot import encode_snapshot  # noqa: PLC0415
    from dra_extender.model.device import CounterConsumption  # noqa: PLC0415

    allocation = msgspec.convert(claim["status"]["allocation"], AllocationResult)
    drawn = CounterConsumption(counter_set="gpu-0", counters=(("sm", 14 * 10**9),))
    return encode_snapshot(allocation, (DeviceHolding(driver=DRIVER, pool="n1", device="mig-0", consumption=(drawn,)),))


def test_expression_of_many_claims_is_renamed_once_for_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once to learn its names, and once with the other names."""
    made = MadeCluster()
    for number in range(20):
        made.pod(f"p{number}", request("gpu", "gpu", f'device.driver == "{DRIVER}"'))
    seen = []

    def counted(expression: str, names: NamesOfExpressions) -> str | None:
        seen.append(expression)
        return renamed(expression, names)

    monkeypatch.setattr("dra_extender.inspection.redaction.names.renamed", counted)
    redacted(made.cluster(), Random(1))
    assert len(seen) == 2


MESSAGE = (
    "0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient s3cret.example.com/gpu, 1 node(s) had untolerated taint"
    " {s3cret: s3cret}, 1 node(s) were unschedulable, 2 s3cret volume s3cret, 3 cannot allocate all claims of s3cret,"
    " 4 s3cret. preemption: 0/4 nodes are available: 4 s3cret."
)


def test_a_message_of_kube_scheduler_keeps_its_reasons_without_names() -> None:
    made = MadeCluster()
    made.pod("train", request("gpu", "gpu"))
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": MESSAGE}
    made.objects["pods"][0]["status"]["conditions"] = [condition]
    objects = redacted(made.cluster(), Random(1)).objects
    pod_status = msgspec.json.decode(objects.of_kind("pods")[0])["status"]
    found = pod_status["conditions"][0]["message"]
    assert SECRET not in found
    assert [reason.kind for reason in reported_reasons(found)] == [reason.kind for reason in reported_reasons(MESSAGE)]
    assert [reason.nodes for reason in reported_reasons(found)] == [
        reason.nodes for reason in reported_reasons(MESSAGE)
    ]
    assert found.startswith("0/4 nodes are available: 1 Insufficient cpu, 1 Insufficient ")
    assert "1 node(s) were unschedulable, 2 redacted: volume" in found
    assert found.endswith("4 redacted.")


@pytest.mark.parametrize("stores_time", [True, False])
def test_what_was_frozen_at_allocation_counts_after_redaction(*, stores_time: bool) -> None:
    """The groups that the slice had then; the driver has published other groups since."""
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    drawn = CounterConsumption("gpu-0", counters=(("sm", 10),), compatibility_groups=("mig",))
    frozen = DeviceHolding(DRIVER, "n1", "part", consumption=(drawn,))
    part = device("part", consumes=[consumption("gpu-0", groups=["vgpu"], sm="10")])
    made.partitions("n1", [counter_set("gpu-0", sm="100")], [part])
    made.running("old", "n1", "part", request("r", "gpu"))
    claim = made.objects["resourceclaims"][-1]
    allocation = msgspec.convert({**claim["status"]["allocation"], "allocationTimestamp": CREATED}, AllocationResult)
    claim["metadata"]["annotations"] = {SNAPSHOT_ANNOTATION: encode_snapshot(allocation, (frozen,))}
    if stores_time:
        claim["status"]["allocation"]["allocationTimestamp"] = CREATED
    found = redacted(made.cluster(), Random(1)).objects
    for cluster in (made.cluster(), found):
        (data,) = cluster.of_kind("resourceclaims")
        (holding,) = holdings_of(read_head(data))
        assert holding.consumption is not None
        assert len(holding.consumption[0].compatibility_groups) == 1


@pytest.mark.parametrize("is_redacted", [False, True])
async def test_preferences_are_in_a_snapshot_and_other_parameters_are_not(tmp_path: Path, *, is_redacted: bool) -> None:
    made = MadeCluster()
    made.nodes("n1")
    secret = {"opaque": {"driver": DRIVER, "parameters": {"token": SECRET}}}
    made.add(device_class("gpu", config=[secret]))
    roots = [device(f"gpu-{index}", attributes={"root": root}) for index, root in enumerate("xyx")]
    made.gpus("n1", *roots)
    made.pod("train", request("gpu", "gpu", count=2))
    made.objects["resourceclaims"][-1]["spec"]["devices"]["config"] = [secret, preferring(f"{DRIVER}/root")]
    file = tmp_path / "cluster.tar.gz"
    objects = made.cluster()
    write_snapshot(redacted(objects, Random(1)).objects if is_redacted else objects, file)
    assert SECRET.encode() not in gzip.decompress(file.read_bytes())
    (row,) = (await what_if(read_snapshot(file))).pods
    assert len(row.after.devices) == 2
    if not is_redacted:
        assert [name.rpartition("/")[2] for name in row.after.devices] == ["gpu-0", "gpu-2"]
    claim = msgspec.json.decode(read_snapshot(file).of_kind("resourceclaims")[0])
    (attribute,) = claim["spec"]["devices"]["config"][1]["opaque"]["parameters"]["matchAttributes"]
    published = msgspec.json.decode(read_snapshot(file).of_kind("resourceslices")[0])["spec"]
    names = {f"{published['driver']}/{name}" for each in published["devices"] for name in each["attributes"]}
    assert attribute in names


ORIGIN = example().origin


def fields_in(shape: Shape, value: Any) -> Any:
    """The names of the described fields that the value has, of items and entries in their order; amounts and texts as None."""
    match shape:
        case Record(struct) if isinstance(value, dict):
            return {
                field.name: fields_in(field.shape, value[field.name])
                for field in fields_of(struct)
                if field.name in value and Mark.LEFT_OUT not in field.marks and field.name != "annotations"
            }
        case ListOf(item) if isinstance(value, list):
            return [fields_in(item, each) for each in value]
        case MapOf(_, below) if isinstance(value, dict):
            return [fields_in(below, each) for each in value.values()]
    return None


@pytest.mark.parametrize("kind", WATCHED)
@given(data=st.data())
@examples(8)
def test_snapshot_keeps_the_described_fields_and_redaction_hides_what_is_in_them(
    kind: str, data: st.DataObject
) -> None:
    made = data.draw(objects(WATCHED[kind], former=True))
    shape = Record(WATCHED[kind])
    if kind not in LABELLED:
        made.get("metadata", {}).pop("labels", None)
    assert fields_in(shape, keep_fields(kind, made)) == fields_in(shape, made)

    objects_of_kind = {kind: [msgspec.json.encode(made)]}
    done = redacted(ClusterObjects(ORIGIN, objects_of_kind), Random(1))

    (found,) = done.objects.of_kind(kind)
    assert fields_in(shape, msgspec.json.decode(found)) == fields_in(shape, made)
    # A label that is compared with a number keeps its value.
    assert done.kept_names or MADE not in found.decode()


def test_choices_of_the_api_stay_as_they_are() -> None:
    """What a scheduler decides by is not renamed: the words that a field may have are those of the API."""
    spec = {
        "driver": "d",
        "pool": {"name": "p"},
        "skipNodeOperations": ["NodePrepareResources", "*"],
        "devices": [{"name": "a", "taints": [{"key": "k", "effect": "NoExecute"}]}],
    }
    made = {"metadata": {"name": "s"}, "spec": spec}
    done = redacted(ClusterObjects(ORIGIN, {"resourceslices": [msgspec.json.encode(made)]}), Random(1))
    found = msgspec.json.decode(done.objects.of_kind("resourceslices")[0])["spec"]
    assert found["skipNodeOperations"] == ["NodePrepareResources", "*"]
    assert found["devices"][0]["taints"][0]["effect"] == "NoExecute"


NAMES = st.sets(st.text("ab0-.Z", max_size=4), max_size=30)


@given(NAMES, st.integers())
def test_other_names_are_in_the_order_of_the_names_and_have_nothing_of_them(names: set[str], seed: int) -> None:
    ordered = OrderedNames()
    for each in names:
        ordered.new_name(each)
    ordered.resolve(Random(seed))
    others = [ordered.new_name(each) for each in sorted(names)]
    assert others == sorted(set(others))
    assert all(REDACTED_NAME.fullmatch(each) for each in others if each)


REDACTED_NAME = re.compile(r"r[0-9a-f]{11}(n[0-9]+){0,5}")
"""Drawn digits, and numbers of sets of names that are slips of each other: nothing of the name, whose length it hides, too."""
SLIPS = st.sets(
    st.sampled_from(["gpu", "infer", "train", "infra.gpu", "large-gpu-", "nvidia.com/large"]).flatmap(
        lambda name: st.tuples(st.just(name), st.integers(0, len(name)), st.sampled_from(["", "x", "-", ".", "s"])).map(
            lambda edit: edit[0][: edit[1]] + edit[2] + edit[0][edit[1] + (edit[2] == "x") :]
        )
    ),
    max_size=5,
)


@given(SLIPS, st.integers())
def test_other_names_are_slips_of_each_other_as_the_names_are_and_hide_the_slip(names: set[str], seed: int) -> None:
    ordered = OrderedNames()
    for each in names:
        ordered.new_name(each)
    ordered.resolve(Random(seed))
    for name in names:
        assert REDACTED_NAME.fullmatch(ordered.new_name(name))
        for other in names:
            assert is_slip(ordered.new_name(name), ordered.new_name(other)) == is_slip(name, other)
            if is_slip(name, other):
                assert {*slip_contexts(name)} & {*slip_contexts(other)}


def test_names_that_are_all_slips_of_each_other_share_one_mark() -> None:
    ordered = OrderedNames()
    names = [f"worker{letter}" for letter in "abcdefgh"]
    for each in names:
        ordered.new_name(each)
    ordered.resolve(Random(1))
    assert [ordered.new_name(each)[12:] for each in names] == ["n1"] * 8


@given(NAMES, st.sets(st.text("ab0-.Z", min_size=1, max_size=4), max_size=4))
def test_names_that_stay_stay_in_the_order_of_all(names: set[str], stay: set[str]) -> None:
    ordered = OrderedNames()
    ordered.keep(*stay)
    for each in names | stay:
        ordered.new_name(each)
    try:
        ordered.resolve(Random(1))
    except UnorderableNameError:
        return
    others = [ordered.new_name(each) for each in sorted(names | stay)]
    assert others == sorted(set(others))
    assert all(ordered.new_name(each) == each for each in stay)


def test_names_without_room_between_them_are_refused_with_both() -> None:
    ordered = OrderedNames()
    ordered.keep("a", "a+")
    for each in ("a", "a!", "a+"):
        ordered.new_name(each)
    with pytest.raises(UnorderableNameError, match=r"'a' and 'a\+' have to stay"):
        ordered.resolve(Random(1))


def test_two_resolutions_have_other_names() -> None:
    """Nobody can tell from two files which names are one."""
    drawn = []
    for seed in range(2):
        ordered = OrderedNames()
        ordered.new_name("a")
        ordered.resolve(Random(seed))
        drawn.append(ordered.new_name("a"))
    assert drawn[0] != drawn[1]
