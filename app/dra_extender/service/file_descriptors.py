import resource
from typing import Final

_WANTED: Final = 65_536
_OWN: Final = 128
"""Files for everything that is no caller's connection: the API server, logs, the policy file."""
_MOST_WAITING: Final = 4096


def raise_limit() -> int:
    """Let the process open as many files as it may, at most 65,536; returns how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft not in (resource.RLIM_INFINITY, most) and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return limit()


def limit() -> int:
    """How many files the process may open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _WANTED if soft == resource.RLIM_INFINITY else min(soft, _WANTED)


def backlog() -> int:
    """How many connections may wait to be accepted: all of them may be accepted at once, before any other can be closed."""
    return min(_MOST_WAITING, limit() // 4)


def most_connections(wanted: int) -> int:
    """How many of `wanted` connections of callers the process can keep open."""
    return max(1, min(wanted, limit() - backlog() - _OWN))
