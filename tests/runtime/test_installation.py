"""What works where a package has no build for the platform: the programs are run as if it were not installed."""

import subprocess
import sys
from pathlib import Path

import pytest
from dra_extender.inspection.snapshot_file import write_snapshot
from dra_extender.runtime.installation import is_installed, lacking, new_event_loop, run_in_new_loop

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

pytestmark = pytest.mark.verify

UNIX_ALONE = ("uvloop", "re2", "resource", "fcntl", "termios", "cryptography")


def without(modules: tuple[str, ...], *arguments: str) -> str:
    """What `kubectl-dra` prints where these modules are not installed."""
    program = (
        f"import sys\nfor each in {modules!r}: sys.modules[each] = None\n"
        "from dra_extender.cli.app import plugin_main\nplugin_main()"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("gpu"))
    made.gpus("n1", device("gpu-0", attributes={"model": "A100-80"}))
    pattern = {"cel": {"expression": 'device.attributes["gpu.example.com"].model.matches("A[0-9]+-40")'}}
    wanted = request("gpu", "gpu")
    wanted["exactly"]["selectors"] = [pattern]
    made.pod("pattern", wanted)
    made.pod("any", request("gpu", "gpu"))
    write_snapshot(made.cluster(), tmp_path / "cluster.tar.gz")
    return str(tmp_path / "cluster.tar.gz")


def test_answers_are_the_same_without_the_packages_for_unix(snapshot: str) -> None:
    for command in (("why", "any", "-n", NAMESPACE), ("devices",)):
        asked = (*command, "--snapshot", snapshot, "-o", "json")
        assert without(UNIX_ALONE, *asked) == without((), *asked)


def test_demo_plays_without_the_packages_for_unix() -> None:
    """All but those whose selectors have a regular expression; the HTTP server of the service is part of it."""
    assert "1 story, 5 of 5 expectations hold" in without(UNIX_ALONE, "demo", "01")


def test_regular_expression_without_re2_is_said_to_be_unevaluated_and_never_left_to_python(snapshot: str) -> None:
    asked = ("why", "pattern", "-n", NAMESPACE, "--snapshot", snapshot)
    assert "google-re2" not in without((), *asked)
    tree = " ".join(without(("re2",), *asked).split())
    assert "google-re2 is not installed here, so that no regular expression is evaluated" in tree


def test_version_names_what_is_lacking_and_what_follows() -> None:
    assert without((), "version").count("\n") == 1
    said = without(("uvloop", "re2"), "version")
    assert "asyncio's own event loop runs" in said
    assert "selectors with a regular expression fail here, and not in the cluster" in said


def test_what_is_installed_lacks_nothing_and_runs_work() -> None:
    assert lacking() == ()
    assert not is_installed("no_such_module_anywhere")

    async def work() -> int:
        return 7

    assert run_in_new_loop(work()) == 7
    loop = new_event_loop()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()
