"""What fails in the background, which a restart hides from those who only look at what was done."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from dra_extender.runtime.supervision import Supervisor


@contextmanager
def background_failures() -> Iterator[list[str]]:
    """Collect what supervisors report inside the block."""
    failures: list[str] = []
    report = Supervisor.report

    def noted(supervisor: Supervisor, name: str, problem: BaseException, **what: object) -> None:
        failures.append(f"background work failed: {name}: {problem!r}")
        report(supervisor, name, problem, **what)

    with patch.object(Supervisor, "report", noted):
        yield failures
