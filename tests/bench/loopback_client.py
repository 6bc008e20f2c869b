import socket
from time import perf_counter_ns
from typing import Final, Self

from tests.bench.rows import BenchError

_SECONDS: Final = 60.0
_PIECE: Final = 1 << 20


class LoopbackClient:
    """One kept-alive HTTP/1.1 connection that sends a request, waits for the answer, and tells how long that took.

    As thin as a client can be, because its own time is part of every figure.
    """

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def post(self, path: str, body: bytes) -> tuple[bytes, float]:
        """(body of the answer, microseconds from the first byte sent to the last one received).

        Raises BenchError for any status but 200.
        """
        head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        request = head.encode() + body
        began = perf_counter_ns()
        self._socket.sendall(request)
        answer = self._answer(path)
        return answer, (perf_counter_ns() - began) / 1000

    def _answer(self, path: str) -> bytes:
        received = bytearray()
        while (end := received.find(b"\r\n\r\n")) < 0:
            self._receive(received, path)
        head = bytes(received[:end]).lower()
        if not head.startswith(b"http/1.1 200"):
            raise BenchError(f"POST {path} was answered {head.decode(errors='replace').splitlines()[0]}.")
        length = int(head.partition(b"content-length:")[2].split(maxsplit=1)[0])
        while len(received) < end + 4 + length:
            self._receive(received, path)
        return bytes(received[end + 4 :])

    def _receive(self, received: bytearray, path: str) -> None:
        piece = self._socket.recv(_PIECE)
        if not piece:
            raise BenchError(f"The connection was closed before POST {path} was answered.")
        received += piece
