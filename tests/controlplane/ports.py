import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Different TCP ports of the loopback interface on which nobody listens, as the kernel chose them.

    They are free when this returns and are not reserved. On Linux the kernel gives ports of one parity to listeners that ask
    for any, and prefers the other parity for outgoing connections, so that a connection of somebody else rarely takes one first.
    """
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM)) for _ in range(count)]
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in sockets]


def is_open(port: int) -> bool:
    """Whether somebody accepts connections on a loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
