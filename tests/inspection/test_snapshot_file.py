"""A snapshot file: it has what decisions read and nothing else, and a file that is none is refused with a reason."""

import gzip
import io
import tarfile
from pathlib import Path

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects, MissingKind
from dra_extender.inspection.snapshot_file import SnapshotFileError, read_snapshot, write_snapshot
from dra_extender.inspection.why.why import why
from dra_extender.model.api_json import ModelError

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

SECRET = "planted-secret"  # noqa: S105 - planted to be looked for


@pytest.fixture
def made() -> MadeCluster:
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0", attributes={"model": "a"}))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    made.pod("train", request("gpu", "gpu"))
    return made


def test_decisions_over_a_snapshot_are_those_over_the_cluster(made: MadeCluster, tmp_path: Path) -> None:
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)

    kept = why(ClusterView(read_snapshot(file)), NAMESPACE, "train")
    live = why(made.view(), NAMESPACE, "train")

    assert msgspec.structs.replace(kept, origin=live.origin) == live
    assert kept.origin.release == "v1.37.1"


def test_nothing_is_kept_that_no_decision_reads(made: MadeCluster, tmp_path: Path) -> None:
    """Environment, arguments, volumes, labels of other programs' annotations, parameters for drivers: any may be a secret."""
    pod, claim, node = (made.objects[kind][-1] for kind in ("pods", "resourceclaims", "nodes"))
    pod["spec"]["containers"][0].update(env=[{"name": "TOKEN", "value": SECRET}], args=[SECRET], command=[SECRET])
    pod["spec"]["volumes"] = [{"name": "v", "secret": {"secretName": SECRET}}]
    for each in (pod, claim, node):
        each["metadata"]["annotations"] = {"example.com/token": SECRET}
        each["metadata"]["managedFields"] = [{"manager": SECRET}]
    opaque = {"opaque": {"driver": "gpu.example.com", "parameters": {"token": SECRET}}}
    claim["spec"]["devices"]["config"] = [{"requests": ["gpu"], **opaque}]
    made.objects["deviceclasses"][-1]["spec"]["config"] = [opaque]
    node["status"]["images"] = [{"names": [SECRET]}]
    file = tmp_path / "cluster.tar.gz"

    write_snapshot(made.cluster(), file)

    assert SECRET.encode() not in gzip.decompress(file.read_bytes())
    assert not ClusterView(read_snapshot(file)).unreadable


def test_file_that_everybody_could_read_is_its_owners_alone_once_a_snapshot_replaces_it(
    made: MadeCluster, tmp_path: Path
) -> None:
    file = tmp_path / "cluster.tar.gz"
    file.touch()
    file.chmod(0o644)
    write_snapshot(made.cluster(), file)
    assert file.stat().st_mode & 0o777 == 0o600


def test_same_objects_make_the_same_file_that_its_owner_alone_may_read(made: MadeCluster, tmp_path: Path) -> None:
    first, second = tmp_path / "first.tar.gz", tmp_path / "second.tar.gz"
    write_snapshot(made.cluster(), first)
    write_snapshot(made.cluster(), second)
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mode & 0o077 == 0


def test_kinds_that_could_not_be_read_are_missing_in_the_answers_too(made: MadeCluster, tmp_path: Path) -> None:
    made.missing = (MissingKind(kind="nodes", reason="list nodes: 403 Forbidden"),)
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)

    origin = read_snapshot(file).origin

    assert origin.partial
    assert [(each.kind, each.reason) for each in origin.missing] == [("nodes", "list nodes: 403 Forbidden")]


def archive(name: str, data: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as made:
        member = tarfile.TarInfo(name)
        member.size = len(data)
        made.addfile(member, io.BytesIO(data))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"no archive", "expected a snapshot", id="no archive"),
        pytest.param(
            archive("pods.jsonl", b"{}"), "its first file is 'pods.jsonl', not snapshot.json", id="another first file"
        ),
        pytest.param(archive("snapshot.json", b"[]"), "snapshot.json: Expected `object`, got `array`", id="a list"),
        pytest.param(
            archive("snapshot.json", b'{"format": "v9", "takenAt": "2026-11-25T09:46:40Z"}'),
            "has format 'v9'",
            id="unknown format",
        ),
        pytest.param(
            archive("snapshot.json", b'{"format": "v9", "x": ' + b"[" * 3000),
            "snapshot.json: maximum recursion depth",
            id="nested lists",
        ),
        pytest.param(
            archive("snapshot.json", b"{}")[:60], "expected a snapshot, a tar archive packed with gzip", id="cut off"
        ),
    ],
)
def test_file_that_is_no_snapshot_is_refused_with_the_reason(tmp_path: Path, data: bytes, said: str) -> None:
    file = tmp_path / "wrong.tar.gz"
    file.write_bytes(data)
    with pytest.raises(SnapshotFileError, match=r"wrong\.tar\.gz") as refused:
        read_snapshot(file)
    assert said in str(refused.value)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.REGTYPE])
def test_archive_of_any_size_is_refused_before_it_fills_the_memory(tmp_path: Path, kind: bytes) -> None:
    """The headers before a member are as long as they say."""
    long = tarfile.TarInfo("pods.jsonl")
    long.type, long.size = kind, 2**30
    file = tmp_path / "long.tar.gz"
    file.write_bytes(gzip.compress(long.tobuf() + bytes(2**24)))
    with pytest.raises(SnapshotFileError, match="has more than 2 MiB unpacked"):
        read_snapshot(file, 2)


def test_object_that_is_none_is_refused_with_its_kind(made: MadeCluster, tmp_path: Path) -> None:
    objects = made.cluster()
    with pytest.raises(ModelError, match="pods: Expected `object`, got `array`"):
        write_snapshot(ClusterObjects(objects.origin, {"pods": [b"[1]"]}), tmp_path / "cluster.tar.gz")


def test_file_that_is_absent_is_refused_with_its_name(tmp_path: Path) -> None:
    with pytest.raises(SnapshotFileError, match=r"absent\.tar\.gz: cannot be read: No such file"):
        read_snapshot(tmp_path / "absent.tar.gz")


ABOUT = b'{"format": "dra-extender.io/snapshot/v1", "takenAt": "2026-11-25T09:46:40Z"}'


def packed_members(file: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    unpacked = io.BytesIO()
    with tarfile.open(fileobj=unpacked, mode="w", format=tarfile.PAX_FORMAT) as made:
        for member, data in ((tarfile.TarInfo("snapshot.json"), ABOUT), *members):
            member.size = member.size or len(data)
            made.addfile(member, io.BytesIO(data) if data else None)
    file.write_bytes(gzip.compress(unpacked.getvalue()))
    return file


def sparse_member(bytes_when_read: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo("pods.jsonl")
    member.pax_headers = {
        "GNU.sparse.major": "0",
        "GNU.sparse.minor": "1",
        "GNU.sparse.map": f"{bytes_when_read},0",
        "GNU.sparse.size": str(bytes_when_read),
        "GNU.sparse.realsize": str(bytes_when_read),
    }
    return member


def linked_member(kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo("pods.jsonl")
    member.type, member.linkname = kind, "snapshot.json"
    return member


@pytest.mark.parametrize(
    "member",
    [
        pytest.param(sparse_member(2**16), id="sparse"),
        pytest.param(linked_member(tarfile.SYMTYPE), id="symbolic-link"),
        pytest.param(linked_member(tarfile.LNKTYPE), id="hard-link"),
        pytest.param(linked_member(tarfile.DIRTYPE), id="directory"),
    ],
)
def test_member_that_is_no_regular_file_is_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    file = packed_members(tmp_path / "odd.tar.gz", (member, b""))
    with pytest.raises(SnapshotFileError, match=r"'pods.jsonl' is no regular file"):
        read_snapshot(file)


@pytest.mark.parametrize(
    "record",
    [
        pytest.param(b"{}\n", id="short"),
        pytest.param(b"{%s}\n" % bytes(2000), id="long"),
        pytest.param(b"\n", id="blank"),
    ],
)
def test_limit_counts_all_members_together(tmp_path: Path, record: bytes) -> None:
    """Short records count as what they take in memory, and blank lines likewise: each takes time."""
    lines = record * (5000 if len(record) < 100 else 400)
    members = [(tarfile.TarInfo(f"{kind}.jsonl"), lines) for kind in ("nodes", "pods", "deviceclasses")]
    file = packed_members(tmp_path / "large.tar.gz", *members)
    with pytest.raises(SnapshotFileError, match="more than 2 MiB unpacked; --snapshot-limit sets another limit"):
        read_snapshot(file, 2)
    assert len(read_snapshot(file, 8).of_kind("pods")) == (0 if record == b"\n" else lines.count(b"\n"))


def test_fields_that_no_decision_reads_take_no_memory_after_reading(tmp_path: Path) -> None:
    pod = {"metadata": {"name": "p", "namespace": "n", "managedFields": [{"manager": "m" * 100_000}]}, "spec": {}}
    file = packed_members(tmp_path / "wide.tar.gz", (tarfile.TarInfo("pods.jsonl"), msgspec.json.encode(pod) + b"\n"))
    (kept,) = read_snapshot(file).of_kind("pods")
    assert len(kept) < 1000


def test_record_beyond_any_object_is_refused(tmp_path: Path) -> None:
    file = packed_members(tmp_path / "line.tar.gz", (tarfile.TarInfo("pods.jsonl"), b"[" * (5 * 2**20)))
    with pytest.raises(SnapshotFileError, match=r"pods\.jsonl: a record has more than 4 MiB"):
        read_snapshot(file)


def test_archive_of_very_many_files_is_refused(tmp_path: Path) -> None:
    file = packed_members(tmp_path / "many.tar.gz", *((tarfile.TarInfo(f"f{index}"), b"x") for index in range(70)))
    with pytest.raises(SnapshotFileError, match="the archive has more than 64 files"):
        read_snapshot(file)


def test_kind_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    file = packed_members(tmp_path / "twice.tar.gz", *((tarfile.TarInfo("pods.jsonl"), b"{}\n") for _ in range(2)))
    with pytest.raises(SnapshotFileError, match=r"expected each kind once, got pods\.jsonl again"):
        read_snapshot(file)
