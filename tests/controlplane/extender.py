import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.controlplane.ports import free_ports
from tests.controlplane.process import START_SECONDS, STOP_SECONDS, Component

REPOSITORY = Path(__file__).resolve().parent.parent.parent
SERVE = (sys.executable, "-m", "dra_extender.cli.app", "serve")


class ExtenderProcess:
    """The product as a real process, on a loopback port that it keeps over restarts.

    `pages` is where probes and metrics are. `extra` are further arguments of `serve`, `environment` is added to ours, `command` is
    what comes before the arguments, and `name` names the log. Without a kubeconfig it looks for the account of a pod.
    As an async context manager it is ready on entry and gone on exit.
    """

    def __init__(
        self,
        workdir: Path,
        kubeconfig: Path | None,
        *,
        extra: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] = SERVE,
        name: str = "dra-extender",
    ) -> None:
        (self.port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self.port}"
        given = environment or {}
        scheme = "https" if given.get("DRA_EXTENDER_PROBES__METRICS") == "authorized" else "http"
        self.pages = f"{scheme}://127.0.0.1:{given.get('DRA_EXTENDER_PROBES__PORT', self.port)}"
        self.log = workdir / f"{name}.log"
        access = () if kubeconfig is None else ("--kubeconfig", str(kubeconfig))
        self._component = Component(
            name,
            [*command, *access, "--host", "127.0.0.1", "--port", str(self.port), *extra],
            self.log,
            environment=environment,
            directory=REPOSITORY,
        )

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            self.kill()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.terminate()

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        return self._component.pid

    async def start(self, *, ready: str | None = "/readyz", seconds: float = START_SECONDS) -> None:
        """Starts it and waits until GET `ready` answers 200; with None (a standby, for one) it does not wait.

        Raises ComponentError, with the end of the log, if it ends or does not answer in time.
        """
        self._component.start()
        if ready is not None:
            await self.wait_ready(ready, seconds=seconds)

    async def wait_ready(self, path: str = "/readyz", *, seconds: float = START_SECONDS) -> None:
        """Waits until GET `path` answers 200; ComponentError as in `start`."""
        await self._component.serving(f"{self.pages}{path}", seconds=seconds)

    def kill(self) -> int | None:
        """SIGKILL: a crash. Returns the exit code, None if it was not running."""
        return self._component.kill()

    async def terminate(self, seconds: float = STOP_SECONDS) -> int | None:
        """SIGTERM and the wait for its end (SIGKILL after `seconds`, exit code -9); returns the exit code, None if not running."""
        return await self._component.stop(seconds)

    async def restart(self, *, ready: str | None = "/readyz", environment: Mapping[str, str] | None = None) -> None:
        """Ends it if it runs, and starts it again on the same port, with these variables beside those that it had."""
        await self.terminate()
        self._component.environment |= environment or {}
        await self.start(ready=ready)

    def report(self, what: str) -> str:
        """A sentence about this process, followed by the end of its log."""
        return self._component.report(what)
