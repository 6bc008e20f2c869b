"""Serves the page on loopback until a signal stops the process."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn

from dra_extender.page.application import PageApplication, new_token
from dra_extender.page.states import FollowedState, States
from dra_extender.page.views import CommandLines
from dra_extender.runtime.supervision import running_task

LOOPBACK: Final = "127.0.0.1"
_MOST_CONNECTIONS: Final = 128
_STOP_SECONDS: Final = 2
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class PortError(OSError):
    """The port is taken or may not be used; the message is a sentence."""


async def serve(state: States, commands: CommandLines, port: int, announce: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is called with the address, token included, once it can be opened.

    Raises:
        PortError: the port is taken or may not be used.
        ConfigurationError: there is no usable kubeconfig.
        ClusterError: the API server does not answer, or is too old.
        UnreadKindsError: nothing could be read at all.
    """
    with _listening(port) as listener:
        if not isinstance(state, FollowedState):
            await _answer(state, commands, listener, announce)
            return
        try:
            await state.start()
            async with running_task(state.follow_changes()):
                await _answer(state, commands, listener, announce)
        finally:
            await state.stop()


@contextmanager
def _listening(port: int) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((LOOPBACK, port))
            listener.listen(_MOST_CONNECTIONS)
        except (OSError, OverflowError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else "no port"
            raise PortError(f"cannot listen on {LOOPBACK}, port {port}: {reason}") from problem
        yield listener


async def _answer(
    state: States,
    commands: CommandLines,
    listener: socket.socket,
    announce: Callable[[str], None],
) -> None:
    token = new_token()
    page = PageApplication(state, commands, token)
    config = uvicorn.Config(
        page.asgi,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="critical",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_graceful_shutdown=_STOP_SECONDS,
    )
    address, port = listener.getsockname()[:2]
    page.prepare()
    announce(f"http://{address}:{port}/{token}/")
    await _Server(config, page.end).serve([listener])


class _Server(uvicorn.Server):
    """A server that ends the streams of the page when a signal stops it, and does not raise the signal once more."""

    def __init__(self, config: uvicorn.Config, ended: Callable[[], None]) -> None:
        super().__init__(config)
        self._ended = ended

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self._ended()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        loop = asyncio.get_running_loop()

        def stop(sig: int, frame: FrameType | None) -> None:
            loop.call_soon_threadsafe(self.handle_exit, sig, frame)

        before = {number: signal.signal(number, stop) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
