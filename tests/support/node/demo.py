"""`make demo-node`: containers on real nodes see, in their own environment, the devices that the extender chose.

A control plane, the extender as it is shipped and two real kubelets, each with containerd and a DRA driver for one GPU, are
started.  The story is told by `kubectl` alone, and checked: what each container prints is what its claim's allocation says.
Nothing is left when it ends, however it ends, but for the logs of a failure.
"""

import argparse
import asyncio
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.apierror import ApiError
from tests.controlplane.build import BuildError
from tests.controlplane.cluster import ControlPlane, KubectlError
from tests.controlplane.node.layout import NodeError
from tests.controlplane.node.options import NodeOptions
from tests.controlplane.objects import DRIVER
from tests.controlplane.process import ComponentError
from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.gpus import gpu, mig_or_vgpu
from tests.support.e2e.installed_extender import InstalledExtender
from tests.support.node.demo_story import GIVEN, GIVEN_LINE, NODES, REQUESTS, SECONDS, STORY, WAIT, manifests
from tests.support.node.injected import expected
from tests.support.node.nodes import NodesSetup, RealNodes
from tests.support.shown_runs import REAL_NODES


class DemoError(Exception):
    """The story did not go as told; the message says where."""


COMMAND_SECONDS: Final = SECONDS + 30.0
ENDING: Final = (signal.SIGINT, signal.SIGTERM)
FAILURES: Final = (ApiError, BuildError, ComponentError, DemoError, KubectlError, NodeError, TimeoutError)
ENDED_BY_SOMEBODY: Final = 130
_DURATION: Final = re.compile(r"\b(\d+[smh])+\b")
_GENERATED: Final = re.compile(r"-gpu-\w{5}\b")
_SPACES: Final = re.compile(" +")


class Terminal:
    """Runs commands in a shell whose kubectl asks the demo's cluster, and keeps what a reader sees."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self.lines: list[str] = []
        self._folder = folder
        programs = (cluster.layout.tools, Path(sys.executable).parent)
        self._environment = {
            "PATH": ":".join([*map(str, programs), os.environ.get("PATH", os.defpath)]),
            "HOME": str(folder),
            "KUBECONFIG": str(cluster.admin_kubeconfig),
            "KUBERC": "off",
            "COLUMNS": "80",
        }

    def say(self, line: str = "") -> None:
        self.lines.append(line)
        print(line, flush=True)

    async def show(self, command: str) -> str:
        """Show a command, run it and show what it prints.  Raises DemoError if it fails."""
        self.say(f"$ {command}")
        printed = await self.run(command)
        for line in printed.rstrip().splitlines():
            self.say(line.rstrip())
        return printed

    async def run(self, command: str) -> str:
        """Run a command that is not shown.  Raises DemoError if it fails."""
        process = await asyncio.create_subprocess_exec(
            *("bash", "-o", "pipefail", "-c", command),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=self._environment,
            cwd=self._folder,
            # Ctrl+C is for the demo, which ends its commands itself.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(COMMAND_SECONDS):
                printed, _ = await process.communicate()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        text = printed.decode(errors="replace")
        if process.returncode != 0:
            raise DemoError(f"{command} ended with {process.returncode}:\n{text}")
        return text


async def tell(world: InstalledExtender, folder: Path) -> list[str]:
    """Tell the story; the lines that were shown.

    Raises:
        DemoError: a command fails, or a container was given something else than its claim was.
    """
    terminal = Terminal(world.cluster, folder)
    for name, manifest in manifests().items():
        (folder / name).write_text(yaml.safe_dump_all(manifest))
    await terminal.run(f"kubectl apply -f {REQUESTS}")
    for number, step in enumerate(STORY):
        if number:
            terminal.say()
        terminal.say(f"# {step.about}")
        for command in step.commands:
            if command.startswith(WAIT):
                await terminal.run(command)
            elif command != GIVEN:
                await terminal.show(command)
            else:
                await check(world, await terminal.show(command))
    return terminal.lines


async def check(world: InstalledExtender, printed: str) -> None:
    """Compare what each container was given with the allocation of its pod's claim."""
    claims = {each["metadata"]["name"]: each for each in await world.api.list(RESOURCE_CLAIMS, "default")}
    wanted = {}
    for pod in await world.api.list(PODS, "default"):
        (container,), (claim,) = pod["spec"]["containers"], pod["status"]["resourceClaimStatuses"]
        variables = expected({claim["name"]: claims[claim["resourceClaimName"]]}, container, DRIVER)
        wanted[pod["metadata"]["name"]] = [f"{name}={value}" for name, value in variables.items()]
    found: dict[str, list[str]] = {}
    for line in GIVEN_LINE.finditer(printed):
        found.setdefault(line["pod"], []).append(line["variable"])
    if found != wanted:
        raise DemoError(f"Containers were given {found}, their claims {wanted}.")


def comparable(lines: Sequence[str]) -> list[str]:
    """The lines without what differs between two runs: durations, the ends of generated names, and the room they take."""
    return [_SPACES.sub(" ", _GENERATED.sub("-gpu-", _DURATION.sub("0s", line))) for line in lines]


async def run(folder: Path) -> list[str]:
    """Start everything, tell the story and end everything; the first SIGINT or SIGTERM ends it early."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in ENDING:
        loop.add_signal_handler(number, end, loop, task)
    since = time.monotonic()
    tell_aside("Starting a control plane, the extender and two nodes.")
    options = NodeOptions(devices=mig_or_vgpu(), counter_sets=[gpu()])
    setup = NodesSetup(nodes=dict.fromkeys(NODES, options))
    async with ControlPlane.start(folder, setup.options) as cluster, RealNodes.start(cluster, folder, setup) as nodes:
        tell_aside(f"They run after {time.monotonic() - since:.0f} s.\n")
        lines = await tell(nodes.world, folder)
        tell_aside(f"\nTold after {time.monotonic() - since:.0f} s; everything ends.")
    return lines


def end(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
    """Cancel the story; whoever asks again does not disturb the end."""
    for number in ENDING:
        loop.add_signal_handler(number, tell_aside, "It is ending already.")
    task.cancel()


def tell_aside(text: str) -> None:
    """Tell what is no part of the story."""
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Status 0 if the story went as told, 1 if not, 130 if somebody ended it."""
    parser = argparse.ArgumentParser(prog="make demo-node", description=__doc__)
    parser.add_argument("--capture", action="store_true", help="keep what is shown for the documents")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="dra-extender-demo-"))
    try:
        lines = asyncio.run(run(folder))
    except FAILURES as error:
        tell_aside(f"demo-node: {error}\nLogs are in {folder}.")
        return 1
    except (KeyboardInterrupt, asyncio.CancelledError):
        shutil.rmtree(folder)
        return ENDED_BY_SOMEBODY
    shutil.rmtree(folder)
    if arguments.capture:
        REAL_NODES.write_text("\n".join(lines) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
