"""The checks of `.ci/run` behind `make test`: each needs more of the machine than a test may, and runs where the machine can.

`python -m tests.support.machine_checks --began EPOCH` fails only for a check that it started.  One that it cannot start is said
before the closing line, which adds up the tests of all parts.  Programs that a set-up target of the Makefile installs are installed
where this process is root and apt-get is there.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from tests.support.totals import totals

Command = tuple[str, ...]
ROOT: Final = Path(__file__).parents[2]
REPORTS: Final = ROOT / ".test-reports"
BUDGET_SECONDS: Final = 3600.0
"""For the whole of `.ci/run`; no check is started that may not end by then."""
PREPARE_SECONDS: Final = 900.0
PYTHON: Final = sys.executable
UPDATE: Final = ("apt-get", "update", "-qq")


@dataclass(frozen=True)
class Check:
    """A target of the Makefile. `needs` says what is missing, `setup` installs it, `prepare` fetches and builds the rest."""

    name: str
    call: Command
    seconds: float
    needs: Command = ()
    setup: Sequence[Command] = ()
    prepare: Sequence[Command] = ()


class Outcome(NamedTuple):
    """`problem` is empty if all is well; a check that did not run has no exit status."""

    check: str
    status: int | None
    problem: str = ""


def _make(target: str, *more: str) -> Command:
    return ("make", "--no-print-directory", target, *more)


CHECKS: Final = (
    Check(
        "image",
        _make("image", "QUICK=1"),
        600.0,
        needs=(PYTHON, "tests/image/needs.py"),
        setup=(UPDATE, _make("image-setup")),
        prepare=((PYTHON, "-m", "tests.image.base"),),
    ),
    Check(
        "observe",
        _make("observe"),
        420.0,
        prepare=((PYTHON, "tests/controlplane/build.py", "--only", "prometheus"),),
    ),
    Check(
        "ui-test",
        _make("ui-test"),
        420.0,
        needs=(PYTHON, "tests/ui/needs.py"),
        setup=(UPDATE, _make("ui-test-setup")),
        prepare=(_make(".ui/.ready"),),
    ),
    Check(
        "bench",
        _make("bench", "QUICK=1"),
        600.0,
        prepare=((PYTHON, "tests/controlplane/build.py"),),
    ),
    Check(
        "node",
        _make("node", "QUICK=1"),
        600.0,
        needs=(PYTHON, "tests/node/needs.py"),
        prepare=((PYTHON, "tests/controlplane/build.py", "--only", "nodes"),),
    ),
)


def run_all(checks: Iterable[Check], ends: float) -> list[Outcome]:
    """Run them one after the other; `ends` is the time by which all must have ended, in seconds since the epoch."""
    outcomes = []
    for check in checks:
        _say(f"{check.name}: {' '.join(check.call)}")
        began = time.monotonic()
        outcomes.append(_outcome(check, ends))
        result = outcomes[-1].problem or "passed"
        _say(f"{check.name}: {result}, after {time.monotonic() - began:.0f} s")
    return outcomes


def _outcome(check: Check, ends: float) -> Outcome:
    problem = _missing(check)
    for command in () if problem else check.prepare:
        problem = problem or _problem(command, PREPARE_SECONDS)
    left = ends - time.time()
    if not problem and left < check.seconds:
        problem = f"it may take {check.seconds:.0f} s, and {max(left, 0):.0f} s are left"
    if problem:
        return Outcome(check.name, None, f"NOT RUN: {problem}")
    status = _status(check.call, check.seconds)
    told = {0: "", None: f"did not end within {check.seconds:.0f} s"}.get(status, f"failed with status {status}")
    return Outcome(check.name, 1 if status is None else status, told)


def _missing(check: Check) -> str:
    """What the machine lacks for a check after the set-up that it allows; empty if nothing."""
    problem = _problem(check.needs, PREPARE_SECONDS) if check.needs else ""
    if not problem or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return problem
    for command in check.setup:
        _problem(command, PREPARE_SECONDS)
    return _problem(check.needs, PREPARE_SECONDS)


def _problem(command: Command, seconds: float) -> str:
    """The last words of a command that failed; empty if it did not."""
    try:
        done = subprocess.run(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = [line.strip() for line in f"{done.stdout}\n{done.stderr}".splitlines() if line.strip()]
    return "; ".join(said[-3:]) or f"{' '.join(command)} failed with status {done.returncode}"


def _status(command: Command, seconds: float) -> int | None:
    """The exit status; None if the command was ended with all that it started, because it took too long."""
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None


def close(outcomes: Sequence[Outcome], tested: Sequence[Path], folder: Path = REPORTS) -> int:
    """Print what did not run, what failed, and the sum of all tests; returns the exit status."""
    reports = [*tested, *(folder / f"{each.check}.xml" for each in outcomes if each.status is not None)]
    for each in outcomes:
        if each.problem:
            _say(f"{each.check}: {each.problem}")
    failed = any(each.status for each in outcomes)
    try:
        found = totals(reports)
    except (OSError, ValueError, ET.ParseError) as error:
        _say(f"a part left no report of its tests: {error}")
        return 1
    sys.stdout.write(f"{found.line}\n")
    return 1 if failed or found.failed else 0


def _say(text: str) -> None:
    sys.stdout.write(f"ci: {text}\n")
    sys.stdout.flush()


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--began", type=float, default=time.time(), help="when the run began, in seconds since the epoch"
    )
    began = parser.parse_args().began
    outcomes = run_all(CHECKS, began + BUDGET_SECONDS)
    return close(outcomes, [REPORTS / f"{part}.xml" for part in ("unit", "parity", "chart", "e2e")])


if __name__ == "__main__":
    sys.exit(main())
