"""The checks and facts behind `/livez` and `/readyz`."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

_LOG = structlog.get_logger(__name__)
_PING: Final[Mapping[str, str | None]] = {"ping": None}


class Health:
    """Named checks and facts behind `/livez` and `/readyz`, shown as Kubernetes components show theirs."""

    def __init__(self) -> None:
        self._readiness: list[Callable[[], Mapping[str, str | None]]] = []
        self._liveness: list[Callable[[], Mapping[str, str | None]]] = []
        self._notes: list[Callable[[], Mapping[str, str]]] = []

    def add_checks(self, source: Callable[[], Mapping[str, str | None]]) -> None:
        """Make checks part of `/readyz`, by name: None is healthy, a sentence says what is wrong."""
        self._readiness.append(source)

    def add_notes(self, source: Callable[[], Mapping[str, str]]) -> None:
        """Show facts in `/readyz?verbose` that make nothing unready."""
        self._notes.append(source)

    def add_liveness_checks(self, source: Callable[[], Mapping[str, str | None]]) -> None:
        """Make a changing set of checks part of `/livez`: failures that only a restart can repair."""
        self._liveness.append(source)

    def livez(self) -> "HealthReport":
        """Check that no background task has failed for so long that a restart must be tried."""
        checks = dict(_PING)
        for source in self._liveness:
            checks.update(source())
        return HealthReport("livez", checks, {})

    def readyz(self, exclude: Collection[str] = ()) -> "HealthReport":
        """Check that calls of kube-scheduler can be answered; checks named in `exclude` are left out, as in Kubernetes itself."""
        checks = dict(_PING)
        notes: dict[str, str] = {}
        for source in self._readiness:
            try:
                checks.update(source())
            except Exception as problem:  # noqa: BLE001 - a probe that breaks is a failed check, not a broken page
                _LOG.exception("source of health checks failed")
                checks["checks"] = f"cannot be read: {type(problem).__name__}"
        for source in self._notes:
            try:
                notes.update(source())
            except Exception as problem:  # noqa: BLE001 - as above
                _LOG.exception("source of notes failed")
                checks["notes"] = f"cannot be read: {type(problem).__name__}"
        return HealthReport("readyz", {name: problem for name, problem in checks.items() if name not in exclude}, notes)


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
