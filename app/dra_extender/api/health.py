"""The checks and facts behind `/livez` and `/readyz`."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

_LOG = structlog.get_logger(__name__)
_PING: Final[dict[str, str | None]] = {"ping": None}
Checks = Callable[[], Mapping[str, str | None]]
"""Names of checks with what is wrong with each; None if nothing is."""


class Health:
    """Named checks and facts behind `/livez` and `/readyz`, shown as Kubernetes components show theirs."""

    def __init__(self) -> None:
        self._readiness: list[tuple[str, Checks]] = []
        self._liveness: list[tuple[str, Checks]] = []
        self._notes: list[tuple[str, Checks]] = []

    def add_checks(self, name: str, source: Checks) -> None:
        """Make checks part of `/readyz`, by name: None is healthy, a sentence says what is wrong.

        `name`: the check that fails if the source does.
        """
        self._readiness.append((name, source))

    def add_notes(self, name: str, source: Callable[[], Mapping[str, str]]) -> None:
        """Show facts in `/readyz?verbose` that make nothing unready; `name`: the check that fails if the source does."""
        self._notes.append((name, source))

    def add_liveness_checks(self, name: str, source: Checks) -> None:
        """Make a changing set of checks part of `/livez`: failures that only a restart can repair."""
        self._liveness.append((name, source))

    def livez(self) -> "HealthReport":
        """Check that no background task has failed for so long that a restart must be tried."""
        checks, failures = _read(self._liveness)
        return HealthReport("livez", _PING | checks | failures, {})

    def readyz(self, exclude: Collection[str] = ()) -> "HealthReport":
        """Check that calls of kube-scheduler can be answered; checks named in `exclude` are left out, as in Kubernetes itself."""
        (checks, failures), (notes, failures_of_notes) = _read(self._readiness), _read(self._notes)
        checks = _PING | checks | failures | failures_of_notes
        return HealthReport(
            "readyz",
            {name: problem for name, problem in checks.items() if name not in exclude},
            {name: text for name, text in notes.items() if text is not None},
        )


def _read(sources: Iterable[tuple[str, Checks]]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """Return what the sources say, and by its name what is wrong with each that fails: a failed check, no broken page."""
    texts, failures = dict[str, str | None](), dict[str, str | None]()
    for name, source in sources:
        try:
            texts.update(source())
        except Exception as problem:  # noqa: BLE001 - a probe that breaks is a failed check, not a broken page
            _LOG.exception("source of health checks failed", check=name)
            failures[name] = f"cannot be read: {type(problem).__name__}"
    return texts, failures


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The result of all checks at one moment."""

    name: str
    checks: Mapping[str, str | None]
    notes: Mapping[str, str]

    @property
    def ok(self) -> bool:
        return not any(self.checks.values())

    @property
    def failures_and_notes(self) -> Mapping[str, str]:
        return {name: reason for name, reason in self.checks.items() if reason} | dict(self.notes)

    @property
    def verbose(self) -> str:
        """A line for each check and note, and the verdict."""
        lines = [
            f"[-]{name} failed: {_one_line(reason)}" if reason else f"[+]{name} ok"
            for name, reason in self.checks.items()
        ]
        lines += [f"[i]{name}: {_one_line(text)}" for name, text in self.notes.items()]
        return "\n".join((*lines, f"{self.name} check {'passed' if self.ok else 'failed'}"))


def _one_line(text: str) -> str:
    return " ".join(text.split())
