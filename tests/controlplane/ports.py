import os
import random
import socket
import sys
from collections import deque
from contextlib import ExitStack, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Final

_RANGE: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST: Final = 20_000
_KEPT: Final = 256
"""Reservations that a process holds at a time; the oldest end first."""


def free_ports(count: int) -> list[int]:
    """Different TCP ports of the loopback interface on which nobody listens.

    On Linux they are below those that the kernel gives to outgoing connections and to listeners that ask for any, and no other
    process gets them from here while this one holds its reservations.  Elsewhere they are free when this returns, no more.
    """
    if sys.platform != "linux":
        return _chosen_by_the_kernel(count)
    below = int(_RANGE.read_text(encoding="ascii").split()[0])
    choose = iter(lambda: random.SystemRandom().randrange(_LOWEST, below), below)
    return list(islice(filter(_is_reserved_now, choose), count))


def is_open(port: int) -> bool:
    """Whether somebody accepts connections on a loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _is_reserved_now(port: int) -> bool:
    """Reserve a port: an abstract socket of its name is one process's alone, and goes with it."""
    reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with suppress(OSError):
        reservation.bind(f"\0dra-extender-test-port-{port}")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("127.0.0.1", port))
        _keep(reservation.detach())
        return True
    reservation.close()
    return False


def _keep(descriptor: int) -> None:
    kept = _reservations()
    kept.append(descriptor)
    if len(kept) > _KEPT:
        os.close(kept.popleft())


@cache
def _reservations() -> deque[int]:
    return deque()


def _chosen_by_the_kernel(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]
