"""The image as the Dockerfile builds it: what is in it, and that it works for any user without writing anything."""

import random
import stat
import subprocess
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path, PurePosixPath

import pytest
import pytest_asyncio

from tests.controlplane import objects
from tests.controlplane.kubeconfig import read_kubeconfig
from tests.controlplane.planes import DEFAULTS
from tests.controlplane.plugin import ControlPlaneFactory
from tests.image.builder import Image
from tests.image.contained import command
from tests.support.e2e.installed_extender import NAMESPACE, InstalledExtender, Setup
from tests.support.e2e.namespace_fixture import NamespaceFixture

pytestmark = pytest.mark.timeout(1800)

ACCOUNT = "/run/secrets/kubernetes.io/serviceaccount"
HOME = "opt/dra-extender"
SHIPPED_USER = (65532, 65532)
RANDOM_USER = (random.randint(1_000_000_000, 2_000_000_000), 0)
"""As OpenShift chooses them: a user that no file of the image knows, of group 0."""
UNCHECKED_HASH = 0b01
"""Flags of a compiled file that is used whatever its source looks like (PEP 552)."""


def run(image: Image, user: tuple[int, int], *words: str) -> subprocess.CompletedProcess[str]:
    call = command(image.files, user, *words, variables=image.config["config"]["Env"])
    return subprocess.run(call, capture_output=True, text=True, timeout=120, check=False)


def of_the_service(image: Image) -> list[Path]:
    """What was put into the image: files, folders and links."""
    return sorted((image.files / HOME).rglob("*"))


def test_two_builds_have_one_digest(image: Image, image_again: Image) -> None:
    """Of different files, if any, the names are told first."""
    assert differing(image, image_again) == []
    assert image.config == image_again.config
    assert image.digest == image_again.digest


def differing(one: Image, other: Image) -> list[str]:
    """Names of the files that are not the same in two images, with their metadata, layer by layer."""
    names = []
    for left, right in zip(one.layers, other.layers, strict=True):
        if left.name != right.name:
            first, second = entries(left), entries(right)
            names += sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
    return names


def entries(layer: Path) -> dict[str, object]:
    with tarfile.open(layer) as archive:
        return {
            each.name: (
                each.get_info(),
                contents.read() if each.isreg() and (contents := archive.extractfile(each)) else b"",
            )
            for each in archive
        }


def test_image_starts_the_service_as_a_user_that_is_not_root(image: Image) -> None:
    config = image.config["config"]
    assert config["User"] == "65532:65532"
    assert (config["Entrypoint"], config["Cmd"]) == (["/opt/dra-extender/bin/dra-extender"], ["serve"])
    assert config["Labels"]["org.opencontainers.image.licenses"] == "Apache-2.0"
    answered = run(image, SHIPPED_USER, *config["Entrypoint"], "--version")
    assert (answered.returncode, answered.stderr) == (0, "")
    assert answered.stdout.split()[-1] == config["Labels"]["org.opencontainers.image.version"]


def test_everyone_may_read_what_is_in_the_image_and_nobody_but_root_may_change_it(image: Image) -> None:
    found = of_the_service(image)
    assert len(found) > 1000
    wrong = []
    for path in found:
        told = path.lstat()
        readable = stat.S_IROTH | (stat.S_IXOTH if path.is_dir() else 0)
        bad = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID | stat.S_ISGID
        if (told.st_uid, told.st_gid) != (0, 0) or (
            not path.is_symlink() and (told.st_mode & readable != readable or told.st_mode & bad)
        ):
            wrong.append(f"{path.relative_to(image.files)} {stat.filemode(told.st_mode)}")
    assert wrong == []


def test_layer_on_the_base_holds_the_service_and_takes_the_installer_away(image: Image) -> None:
    """buildah makes one layer of all that the last stage changes."""
    added = [name.strip("./") for name in entries(image.layers[-1])]
    ours = [name for name in added if name.startswith(f"{HOME}/")]
    others = [name for name in added if name not in ours and not PurePosixPath(name).name.startswith(".wh.")]
    assert len(ours) > 1000
    assert [name for name in others if not (image.files / name).is_dir()] == []
    assert run(image, SHIPPED_USER, "python", "-m", "pip", "--version").returncode != 0


def test_bytecode_is_used_whatever_time_its_source_has(image: Image) -> None:
    sources = [path for path in of_the_service(image) if path.suffix == ".py" and "dra_extender" in path.parts]
    compiled = {path for path in of_the_service(image) if path.suffix == ".pyc"}
    assert {path.parent / "__pycache__" / f"{path.stem}.cpython-313.pyc" for path in sources} <= compiled
    flags = {int.from_bytes(path.read_bytes()[4:8], "little") for path in compiled}
    assert flags == {UNCHECKED_HASH}


def test_an_image_built_for_traces_can_send_them(image: Image, image_with_traces: Image) -> None:
    """The published one says what it lacks."""
    words = ("env", "DRA_EXTENDER_TRACING__ENABLED=true", *image.config["config"]["Entrypoint"], "serve")
    refused, tried = (run(each, SHIPPED_USER, *words) for each in (image, image_with_traces))
    assert "expected the extra `tracing` of the package" in refused.stdout + refused.stderr
    assert "tracing" not in tried.stdout + tried.stderr  # what it lacks is a cluster
    assert refused.returncode != 0
    assert tried.returncode != 0


@pytest.mark.parametrize("user", [SHIPPED_USER, RANDOM_USER], ids=["shipped user", "random user"])
def test_process_has_no_right_but_to_read(image: Image, user: tuple[int, int]) -> None:
    """The conditions of the tests below hold."""
    told = run(image, user, "/bin/cat", "/proc/self/status").stdout
    status = dict(line.split(":\t", 1) for line in told.splitlines() if ":\t" in line)
    assert (status["Uid"], status["Gid"]) == tuple("\t".join([str(each)] * 4) for each in user)
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"], status["Groups"].strip()) == ("1", "")
    for folder in ("/", "/tmp", "/opt/dra-extender"):  # noqa: S108
        assert "Read-only file system" in run(image, user, "/bin/sh", "-c", f"echo > {folder}/x").stderr


@pytest.fixture(scope="module", params=[SHIPPED_USER, RANDOM_USER], ids=["shipped user", "random user"])
def setup(request: pytest.FixtureRequest, image: Image, tmp_path_factory: pytest.TempPathFactory) -> Setup:
    """The service out of the image, which finds account and API server as any pod does."""

    folder = tmp_path_factory.mktemp("account")

    def serve(kubeconfig: Path) -> list[str]:
        access = read_kubeconfig(kubeconfig)
        for name, text in {"token": access.token, "ca.crt": access.authority, "namespace": NAMESPACE}.items():
            (folder / name).write_text(text)
        config = image.config["config"]
        host, _, port = access.server.removeprefix("https://").partition(":")
        variables = [*config["Env"], f"KUBERNETES_SERVICE_HOST={host}", f"KUBERNETES_SERVICE_PORT={port}"]
        shown = {f"{ACCOUNT}/{file.name}": file for file in folder.iterdir()}
        words = (*config["Entrypoint"], *config["Cmd"])
        return command(image.files, request.param, *words, variables=variables, shown=shown)

    return Setup(command=serve)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(
    control_plane: ControlPlaneFactory, setup: Setup, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[InstalledExtender]:
    """A control plane with a kube-scheduler that asks the service in the image."""
    async with InstalledExtender.start(await control_plane(DEFAULTS), tmp_path_factory.mktemp("image"), setup) as world:
        yield world


@pytest.mark.asyncio(loop_scope="module")
async def test_service_in_a_read_only_image_places_a_pod(world: InstalledExtender, image: Image) -> None:
    """By filter, prioritize and bind over HTTP, asked by a real kube-scheduler, until it is told to stop."""
    scene = NamespaceFixture(world, f"image-{world.extender.port}")
    await scene.open()
    node = await scene.node_with_devices("one", objects.device("gpu-0"))
    await scene.claim("mine")
    await scene.pod("asks", claim="mine")
    assert await scene.wait_until_bound("asks") == node
    assert await world.metric("requests_total", verb="filter", outcome="ok") > 0
    assert world.complaints() == []
    await scene.clear()
    assert await world.extender.terminate() == 0
