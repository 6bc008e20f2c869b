from datetime import UTC, datetime


def micro_time(seconds: float) -> str:
    """A time (seconds since the epoch) as the API writes one with microseconds (MicroTime)."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
