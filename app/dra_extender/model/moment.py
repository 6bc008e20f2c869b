"""Points in time: seconds since the epoch in memory, RFC 3339 in JSON."""

from datetime import UTC, datetime
from typing import Any, Final

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC, microsecond=0)


class Moment(float):
    """Seconds since the epoch; in JSON e.g. `2026-11-25T09:46:40Z`, what no calendar has as the first or the last of its days."""


def moment(seconds: float | None) -> Moment | None:
    return None if seconds is None else Moment(seconds)


def moment_text(moment: float) -> str:
    """Return the time in RFC 3339 (UTC), with microseconds where it has any."""
    try:
        found = datetime.fromtimestamp(moment, UTC)
    except (ValueError, OverflowError, OSError):
        found = _FIRST if moment < 0 else _LAST
    return found.isoformat().replace("+00:00", "Z")


def encoded_moment(value: Any) -> str:
    """Return what msgspec writes for a Moment, as its `enc_hook`."""
    if isinstance(value, Moment):
        return moment_text(value)
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


def decoded_moment(kind: type, value: Any) -> Moment:
    """Return the Moment that msgspec has read, as its `dec_hook`.

    Raises:
        ValueError: it is no time in RFC 3339.
    """
    if kind is not Moment:
        raise NotImplementedError(f"no JSON for {kind.__name__}")
    if not isinstance(value, str):
        raise ValueError(f"expected a time in RFC 3339, got {type(value).__name__}")  # noqa: TRY004 - msgspec's own contract
    found = datetime.fromisoformat(value)
    return Moment((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
