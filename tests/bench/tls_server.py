"""The verbs behind the service's own server, over plain HTTP or TLS, with use cases that answer at once."""

import argparse
import asyncio
import signal
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from dra_extender.config.service_settings import ServerSettings, TlsSettings
from dra_extender.service.certificates import Certificates
from dra_extender.service.server import connections_of, listen, serving

from tests.support.api.sites import make_site


async def serve(port: int, probes: int, folder: Path | None) -> None:
    """Until SIGTERM; `folder` has the certificates, None is plain HTTP."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = ServerSettings(host="127.0.0.1", port=port)
    site = make_site(settings)
    certificates = None
    if folder is not None:
        files = TlsSettings(
            cert_file=folder / "server.crt", private_key_file=folder / "server.key", client_ca_file=folder / "ca.crt"
        )
        certificates = Certificates(files, site.metrics)
        certificates.load()
    async with AsyncExitStack() as stack:
        connections = connections_of(settings, site.metrics)
        for number, secured in ((port, None), (probes, certificates)):
            listener = stack.enter_context(listen("127.0.0.1", number))
            await stack.enter_async_context(serving(site.app, settings, listener, connections, secured))
        await stop.wait()


def main() -> None:
    """`--port` speaks plain HTTP, `--measured` what is measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--measured", type=int, required=True)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments.port, arguments.measured, arguments.folder))


if __name__ == "__main__":
    main()
