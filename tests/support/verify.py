"""Run the parts of `make verify`: tests on real components, one part after the other.

`python -m tests.support.verify [--strict] [PART...]`. One thread prepares the parts in their order: it installs and builds what
they use. A part starts as soon as it is prepared, so that tests run beside the builds of other parts. Where this process is root
and apt-get is there, the set-up targets of the Makefile install what is missing. A part that cannot start is named before the
closing line, which adds up the tests of all parts; with --strict, or if the environment has CI=true, such a part fails the run.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.support.junit import totals

Command = tuple[str, ...]
ROOT: Final = Path(__file__).parents[2]
REPORTS: Final = ROOT / ".test-reports"
BUDGET_SECONDS: Final = 5100.0
"""For the whole of `.ci/run`; no part is started that may not end by then."""
PREPARE_SECONDS: Final = 2400.0
"""For one command that installs or builds; the control plane takes longest."""
PYTHON: Final = sys.executable
UPDATE: Final = ("apt-get", "update", "-qq")


@dataclass(frozen=True)
class Part:
    """A target of the Makefile. `needs` says what is missing, `setup` installs it, `prepare` fetches and builds the rest.

    `beside`: built next, while the part may run already, for the tests of it that wait for a program themselves.
    """

    name: str
    call: Command
    seconds: float
    needs: Command = ()
    setup: Sequence[Command] = ()
    prepare: Sequence[Command] = ()
    beside: Sequence[Command] = ()


class Outcome(NamedTuple):
    """`problem` is empty if all is well; a part that did not run has no exit status."""

    part: str
    status: int | None
    problem: str = ""
    seconds: float = 0.0


def _make(target: str, *more: str) -> Command:
    return ("make", "--no-print-directory", target, *more)


def _build(*targets: str) -> Command:
    """Build at low priority: the tests that run meanwhile come first."""
    return ("nice", "-n", "5", PYTHON, "tests/controlplane/build.py", *(f"--only={target}" for target in targets))


PARTS: Final = (
    Part(
        "shell-test",
        _make("shell-test"),
        180.0,
        needs=("sh", "-c", "for shell in bash zsh fish; do command -v $shell || { echo no $shell; exit 1; }; done"),
        setup=(UPDATE, _make("shell-test-setup")),
    ),
    Part("programs", _make("programs"), 600.0, prepare=(_build("actionlint", "helm", "krew", "oracle"),)),
    Part(
        "chart",
        _make("chart"),
        420.0,
        prepare=(_build("helm", "helm3", "kubeconform", "promtool", "controlplane"),),
    ),
    Part("contract", _make("contract"), 420.0, prepare=(_build("controlplane", "release-1.34"),)),
    Part(
        "e2e",
        _make("e2e"),
        2400.0,
        prepare=(_build("controlplane", "release-1.34", "helm"),),
        beside=(_build("earlier-scheduler"),),
    ),
    Part(
        "image",
        _make("image", "QUICK=1"),
        600.0,
        needs=(PYTHON, "tests/image/needs.py"),
        setup=(UPDATE, _make("image-setup")),
        prepare=((PYTHON, "-m", "tests.image.base"), _build("controlplane")),
    ),
    Part(
        "ui-test",
        _make("ui-test"),
        420.0,
        needs=(PYTHON, "tests/ui/needs.py"),
        setup=(UPDATE, _make("ui-test-setup")),
        prepare=(_make(".ui/.ready"), _build("controlplane")),
    ),
    Part("observe", _make("observe"), 420.0, prepare=(_build("controlplane", "helm", "prometheus"),)),
    Part("bench", _make("bench", "QUICK=1"), 600.0, prepare=(_build("controlplane", "oracle"),)),
    Part(
        "node",
        _make("node", "QUICK=1"),
        600.0,
        needs=(PYTHON, "tests/node/needs.py"),
        prepare=(_build("controlplane", "nodes"),),
    ),
)


def run_all(parts: Iterable[Part], ends: float, say: Callable[[str], None] | None = None) -> list[Outcome]:
    """Prepare and run the parts; `ends` is the time by which all must have ended, in seconds since the epoch.

    Of the parts that are prepared the first one runs; outcomes are in the order in which the parts ended.
    """
    say = say or _say
    outcomes = []
    with ThreadPoolExecutor(1) as preparing:
        waiting = {}
        for part in parts:
            waiting[part] = preparing.submit(_prepare, part, say)
            for command in part.beside:
                preparing.submit(_problem, command, PREPARE_SECONDS)
        while waiting:
            part = _first_prepared(waiting)
            outcomes.append(_outcome(part, waiting.pop(part).result(), ends, say))
    return outcomes


def _first_prepared(waiting: dict[Part, Future[str]]) -> Part:
    wait(waiting.values(), return_when=FIRST_COMPLETED)
    return next(part for part, prepared in waiting.items() if prepared.done())


def _prepare(part: Part, say: Callable[[str], None]) -> str:
    """Install and build what a part uses. Return what is missing, which is empty if nothing is."""
    began = time.monotonic()
    problem = _missing(part)
    for command in () if problem else part.prepare:
        problem = problem or _problem(command, PREPARE_SECONDS)
    say(f"{part.name}: {'cannot run' if problem else 'prepared'}, after {time.monotonic() - began:.0f} s")
    return problem


def _outcome(part: Part, problem: str, ends: float, say: Callable[[str], None]) -> Outcome:
    left = ends - time.time()
    if not problem and left < part.seconds:
        problem = f"it may take {part.seconds:.0f} s, and {max(left, 0):.0f} s are left"
    if problem:
        return Outcome(part.name, None, f"NOT RUN: {problem}")
    say(f"{part.name}: {' '.join(part.call)}")
    began = time.monotonic()
    status = _status(part.call, part.seconds)
    seconds = time.monotonic() - began
    told = {0: "", None: f"did not end within {part.seconds:.0f} s"}.get(status, f"failed with status {status}")
    say(f"{part.name}: {told or 'passed'}, after {seconds:.0f} s")
    return Outcome(part.name, 1 if status is None else status, told, seconds)


def _missing(part: Part) -> str:
    """Return what the machine lacks for a part after the set-up that the machine allows."""
    problem = _problem(part.needs, PREPARE_SECONDS) if part.needs else ""
    if not problem or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return problem
    failures = [_problem(command, PREPARE_SECONDS) for command in part.setup]
    problem = _problem(part.needs, PREPARE_SECONDS)
    return "; ".join(filter(None, (problem, *failures))) if problem else ""


def _problem(command: Command, seconds: float) -> str:
    """Return the last words of a command that failed; empty if it did not."""
    with TemporaryFile("w+", errors="replace") as output:
        try:
            status = _status(command, seconds, output)
        except OSError as error:
            return str(error)
        output.seek(0)
        lines = [line.strip() for line in output if line.strip()]
    if status is None:
        return f"{' '.join(command)} did not end within {seconds:.0f} s"
    if status == 0:
        return ""
    return "; ".join(lines[-3:]) or f"{' '.join(command)} failed with status {status}"


def _status(command: Command, seconds: float, output: IO[str] | None = None) -> int | None:
    """Return the exit status; None if the command was ended with all that it started, because it took too long."""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output and subprocess.STDOUT,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def close(outcomes: Sequence[Outcome], tested: Sequence[Path], *, strict: bool, folder: Path = REPORTS) -> int:
    """Print how long each part took, what did not run, what failed, and the sum of all tests; return the exit status."""
    ran = [outcome for outcome in outcomes if outcome.status is not None]
    reports = [*tested, *(folder / f"{outcome.part}.xml" for outcome in ran)]
    for outcome in outcomes:
        _say(f"{outcome.part}: {outcome.problem or f'passed, {outcome.seconds:.0f} s'}")
    failed = any(outcome.status for outcome in ran) or (strict and len(ran) < len(outcomes))
    try:
        found = totals(reports)
    except (OSError, ValueError, ET.ParseError) as error:
        _say(f"a part left no report of its tests: {error}")
        return 1
    for reason, times in sorted(found.reasons.items()):
        _say(f"NOT TESTED, {times} times: {reason}")
    sys.stdout.write(f"{found.line}\n")
    return 1 if failed or found.failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"verify: {text}\n")
    sys.stdout.flush()


def main() -> int:
    """Return the exit status."""
    names = [part.name for part in PARTS]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"run these alone: {', '.join(names)}")
    parser.add_argument("--strict", action="store_true", help="fail if a part cannot run on this machine")
    parser.add_argument("--began", type=float, default=time.time(), help="seconds since the epoch, for the budget")
    parser.add_argument("--tested", type=Path, nargs="*", default=(), help="reports of tests that ran before, to add")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(names):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    parts = [part for part in PARTS if not arguments.parts or part.name in arguments.parts]
    began = time.monotonic()
    outcomes = run_all(parts, arguments.began + BUDGET_SECONDS)
    _say(f"ended after {time.monotonic() - began:.0f} s")
    return close(outcomes, arguments.tested, strict=arguments.strict or os.environ.get("CI") == "true")


if __name__ == "__main__":
    sys.exit(main())
