"""Part "tls": callers without a certificate that are to keep the one who has one from the verbs.

They come from another address than the victim, as a pod of a tenant does.
"""

import socket
import ssl
from contextlib import ExitStack, suppress
from dataclasses import replace
from random import Random
from threading import Event
from typing import Final

from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene, fewer
from tests.hostile.part_http import attack_with
from tests.hostile.part_informer import CPU_SECONDS
from tests.hostile.verdicts import BROKEN, GROWN, STALL, Job, Measured
from tests.hostile.worker import Worker

ATTACK: Final = "tls attack"
MODULE: Final = "tls"
ADDRESSES: Final = 16
"""From so many addresses callers come at most."""
LIMITS: Final = (BROKEN, STALL, replace(GROWN, most=1.5 * GROWN.most))
"""`server.in_flight_bytes` is what handshakes may take; connections that wait to be accepted take some beside."""
_MOST_CONNECTIONS: Final = 1100
_MOST_EXPONENT: Final = 11
_HOLD_SECONDS: Final = 1.0
_HALF, _GARBAGE, _REFUSED = range(1, 4)
"""What a caller does once it is connected: half of a handshake, none at all, a whole one without certificate; 0: nothing."""


def attack(worker: Worker, job: Job) -> Measured:
    """Open the connections of the job, and ask for `/livez` meanwhile."""
    return attack_with(_open, worker, job)


def _open(port: int, job: Job) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as held, suppress(OSError):
        for number in range(int(job["count"])):
            source = (f"127.0.0.{2 + number % int(job['addresses'])}", 0)
            with suppress(ssl.SSLError):
                _meet(held.enter_context(socket.create_connection(("127.0.0.1", port), 2.0, source)), job, context)
        Event().wait(_HOLD_SECONDS)


def _meet(connection: socket.socket, job: Job, context: ssl.SSLContext) -> None:
    if job["form"] == _GARBAGE:
        connection.sendall(b"POST /bind HTTP/1.1\r\n\r\n")
    elif job["form"] == _HALF:
        outgoing = ssl.MemoryBIO()
        with suppress(ssl.SSLWantReadError):
            context.wrap_bio(ssl.MemoryBIO(), outgoing).do_handshake()
        hello = outgoing.read()
        connection.sendall(hello[: len(hello) // 2])
    elif job["form"] == _REFUSED:
        with suppress(OSError), context.wrap_socket(connection):
            pass


def _handshakes() -> Subject[Gene]:
    def make(random: Random) -> Gene:
        return Gene("held", (random.randrange(5, _MOST_EXPONENT), random.randrange(4), random.randrange(1, ADDRESSES)))

    def change(random: Random, gene: Gene) -> Gene:
        count, form, addresses = gene.numbers
        return replace(
            gene,
            numbers=(
                min(count + random.choice((-1, 1)), _MOST_EXPONENT),
                form,
                min(addresses + random.choice((0, 1)), ADDRESSES),
            ),
        )

    def job(gene: Gene) -> Job | None:
        count, form, addresses = gene.numbers
        return {
            "kind": ATTACK,
            "count": min(2 ** max(count, 0), _MOST_CONNECTIONS),
            "form": form,
            "addresses": addresses,
        }

    return Subject("handshakes", make, change, job, lambda gene: str(job(gene)), fewer)


PART: Final = Part("tls", MODULE, lambda _: [(LIMITS, [_handshakes()])], CPU_SECONDS, attack)
"""Search for handshakes that stall the server or keep the victim out."""
