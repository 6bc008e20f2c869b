"""The archive of this machine needs no Python, and `kubectl dra` finds it where Krew puts it."""

import asyncio
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.archive.conftest import DIST, HERE
from tests.controlplane import objects
from tests.controlplane.build import CONTROL_PLANE, KREW, ensure
from tests.controlplane.planes import DEFAULTS
from tests.controlplane.plugin import ControlPlaneFactory
from tests.controlplane.resources import NODES, RESOURCE_SLICES
from tests.release import licenses
from tests.release.archive import (
    COMPLETION,
    NAME,
    PLATFORMS,
    ROOT,
    SNAPSHOT,
    THIRD_PARTY,
    asked,
    file_name,
    pack,
    program,
)
from tests.release.krew import text

pytestmark = pytest.mark.timeout(1800)

EXAMPLES = ROOT / "deploy" / "examples"


@pytest.fixture(scope="module")
def unpacked(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the unpacked archive and a snapshot, and nothing else."""
    folder = tmp_path_factory.mktemp("clean")
    shutil.unpack_archive(built, folder)
    shutil.copy(SNAPSHOT, folder)
    return folder


@pytest.mark.parametrize(
    ("words", "begins"),
    [
        (("why", "infer-1", "-n", "ml"), "ml/infer-1  Pending"),
        (("devices", "--free"), "node-"),
        (("audit",), ""),
        (("what-if", "--fill", "ml/infer-1"), ""),
        (("usage",), ""),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_program_answers_about_a_snapshot_with_no_python_beside_it(
    words: tuple[str, ...], begins: str, unpacked: Path
) -> None:
    answer = asked(unpacked / program(HERE), *words, "--snapshot", SNAPSHOT.name, folder=unpacked)
    assert answer.strip()
    assert answer.startswith(begins)


def test_program_helps_and_completes(unpacked: Path) -> None:
    """Both read the sources of the commands, which the archive has to bring."""
    path = unpacked / program(HERE)
    assert "Say why a pod waits" in asked(path, "-h", folder=unpacked)
    assert asked(path, "--version", folder=unpacked).split()[-1].count(".") == 2
    assert asked(path, "__complete", "devi", folder=unpacked).startswith("devices\t")
    assert "kubectl-dra __complete" in asked(path, "completion", "bash", folder=unpacked)


def test_program_plays_every_story(unpacked: Path) -> None:
    """Through the real service over real HTTP: next to nothing of the program is left out of that."""
    told = asked(unpacked / program(HERE), "demo", folder=unpacked)
    found = re.search(r"(\d+) stories, (\d+) of (\d+) expectations hold", told)
    assert found is not None, told
    assert int(found[1]) == len(list(EXAMPLES.glob("*.yaml")))
    assert found[2] == found[3]


@pytest.mark.asyncio(loop_scope="module")
async def test_program_reads_a_real_cluster(unpacked: Path, control_plane: ControlPlaneFactory) -> None:
    """It brings a client with TLS."""
    cluster = await control_plane(DEFAULTS)
    await cluster.api.create(NODES, objects.node("n1"))
    await cluster.api.create(
        RESOURCE_SLICES, objects.resource_slice("s1", node="n1", devices=[objects.device("gpu-0")])
    )
    words = ("devices", "--kubeconfig", str(cluster.admin_kubeconfig))
    assert "gpu-0" in await asyncio.to_thread(asked, unpacked / program(HERE), *words, folder=unpacked)


def test_archive_brings_the_licenses_of_all_that_is_in_it(unpacked: Path) -> None:
    texts = (unpacked / NAME / THIRD_PARTY).read_text(encoding="utf-8")
    assert [each for each in licenses.locked() if f"\n{each} " not in texts] == []
    assert (unpacked / NAME / "LICENSE").read_bytes() == (DIST.parent / "LICENSE").read_bytes()


def test_archive_holds_nothing_that_only_builds_or_tests(unpacked: Path) -> None:
    names = {path.name.partition("-")[0].lower() for path in (unpacked / NAME / "_internal").iterdir()}
    assert names & {"pyinstaller", "pytest", "hypothesis", "mypy", "pip", "setuptools", "hatchling"} == set()


def test_archive_unpacks_into_its_own_folder_alone(built: Path) -> None:
    with tarfile.open(built) as archive:
        members = archive.getmembers()
    assert {each.name.partition("/")[0] for each in members} == {NAME}
    assert {(each.uid, each.gid, each.uname) for each in members} == {(0, 0, "")}
    outside = [each for each in members if each.issym() and (each.linkname.startswith("/") or ".." in each.linkname)]
    assert [each.name for each in outside if (Path(each.name).parent / each.linkname).parts[0] != NAME] == []


def test_kubectl_finds_the_program_that_krew_installed(built: Path, unpacked: Path, tmp_path: Path) -> None:
    """The archives of other platforms, which Krew does not open here, are stood in for."""
    folder = tmp_path / "dist"
    folder.mkdir()
    for platform in PLATFORMS:
        if platform != HERE:
            pack(stand_in(tmp_path), folder / file_name(platform))
    shutil.copy(built, folder)
    manifest = tmp_path / "dra.yaml"
    manifest.write_text(text(folder, "v0.0.1", "https://example.com/dra-extender"))
    home = tmp_path / "krew"
    path = os.pathsep.join((str(home / "bin"), str(ensure(CONTROL_PLANE)), os.defpath))
    given = {"KREW_ROOT": str(home), "HOME": str(tmp_path), "PATH": path}
    archive = folder / built.name
    call(ensure(KREW) / "kubectl-krew", "install", "--manifest", manifest, "--archive", archive, given=given)
    asks = ("dra", "why", "infer-1", "-n", "ml", "--snapshot", unpacked / SNAPSHOT.name)
    kubectl = ensure(CONTROL_PLANE) / "kubectl"
    assert call(kubectl, *asks, given=given).startswith("ml/infer-1  Pending")
    (home / "bin" / COMPLETION).symlink_to(home / "store" / "dra" / "v0.0.1" / NAME / COMPLETION)
    assert call(kubectl, "__complete", "dra", "devi", given=given).startswith("devices\t")


def call(*command: str | Path, given: dict[str, str]) -> str:
    """Standard output of a program that has to succeed, with these variables alone."""
    done = subprocess.run(
        command, env=given, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def stand_in(folder: Path) -> Path:
    made = folder / NAME
    made.mkdir(exist_ok=True)
    (made / "LICENSE").write_text("stands in")
    return made
