import gzip
import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.controlplane.node.oci_image import architecture, image, write_image

NAMES = ("node.test/box:1", "node.test/sandbox:1")
PROGRAM = b"\x7fELF" + bytes(range(256)) * 4


def unpacked(data: bytes) -> dict[str, bytes | None]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        found = {each.name: tar.extractfile(each) for each in tar.getmembers()}
        return {name: None if file is None else file.read() for name, file in found.items()}


def blob(files: dict[str, bytes | None], descriptor: dict[str, Any]) -> bytes:
    """What a descriptor stands for, after a check of digest and size."""
    algorithm, _, digest = descriptor["digest"].partition(":")
    data = files[f"blobs/{algorithm}/{digest}"]
    assert data is not None
    assert hashlib.new(algorithm, data).hexdigest() == digest
    assert len(data) == descriptor["size"]
    return data


def test_the_same_program_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "box"
    program.write_bytes(PROGRAM)
    write_image(program, tmp_path / "first.tar", *NAMES)
    program.touch()
    monkeypatch.setenv("USER", "somebody")
    monkeypatch.setattr("time.time", lambda: 1e9)
    write_image(program, tmp_path / "second.tar", *NAMES)
    assert (tmp_path / "first.tar").read_bytes() == (tmp_path / "second.tar").read_bytes()


def test_another_program_gives_another_image() -> None:
    assert image("box", PROGRAM, *NAMES) != image("box", PROGRAM + b"!", *NAMES)


def test_every_name_leads_to_the_program_by_descriptors_that_hold() -> None:
    files = unpacked(image("box", PROGRAM, *NAMES))
    assert json.loads(files["oci-layout"] or b"") == {"imageLayoutVersion": "1.0.0"}
    entries = json.loads(files["index.json"] or b"")["manifests"]
    assert [each["annotations"]["io.containerd.image.name"] for each in entries] == list(NAMES)
    for entry in entries:
        manifest = json.loads(blob(files, entry))
        config = json.loads(blob(files, manifest["config"]))
        layer = gzip.decompress(blob(files, manifest["layers"][0]))
        assert config["config"]["Entrypoint"] == ["/box"]
        assert config["architecture"] == architecture()
        assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]
        assert unpacked(layer)["box"] == PROGRAM


def test_the_program_may_be_run_by_any_user_and_mount_points_exist() -> None:
    files = unpacked(image("box", PROGRAM, *NAMES))
    manifest = json.loads(blob(files, json.loads(files["index.json"] or b"")["manifests"][0]))
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(files, manifest["layers"][0])))) as tar:
        assert tar.getmember("box").mode == 0o755
        assert {each.name for each in tar.getmembers() if each.isdir()} >= {"dev", "proc", "sys"}
        assert {(each.uid, each.gid, each.mtime) for each in tar.getmembers()} == {(0, 0, 0)}


@pytest.mark.parametrize(("machine", "expected"), [("x86_64", "amd64"), ("aarch64", "arm64"), ("riscv64", "riscv64")])
def test_architectures_have_the_names_of_go(monkeypatch: pytest.MonkeyPatch, machine: str, expected: str) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert architecture() == expected
