"""Part "http": requests and connections that are to hold up a real server, while its probes are asked."""

import json
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from random import Random
from threading import Event, Thread
from time import monotonic
from typing import Any, Final, Self

from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene, fewer
from tests.hostile.part_informer import CPU_SECONDS, MODULE
from tests.hostile.verdicts import BROKEN, GROWN, STALL, Job, Limit, Measured
from tests.hostile.worker import Worker, WorkerLostError

ATTACK: Final = "attack"
"""The kind of a job that is not for the worker: requests are sent from here."""
LIVEZ: Final = Limit("livez", 0.25, "s")
LIMITS: Final = (BROKEN, STALL, GROWN)
_PROBE_EVERY_SECONDS: Final = 0.05
_ANSWER_SECONDS: Final = 20.0
_UNANSWERED: Final = 3
"""So many probes in a row without an answer within seconds are a server that is not alive, whatever else the machine does."""
_PROBE_PATIENCE_SECONDS: Final = 3.0
_BODY_BYTES: Final = 31 * 2**20
_MOST_COUNT: Final = 15
_MOST_CONNECTIONS: Final = 1100
_PATHS: Final = ("/filter", "/preempt", "/prioritize", "/bind")


def attack(worker: Worker, job: Job) -> Measured:
    """Send what the job says, and ask for `/livez` meanwhile."""
    return attack_with(_send, worker, job)


def attack_with(send: Callable[[int, Job], None], worker: Worker, job: Job) -> Measured:
    """Let `send` do to the port of the verbs what the job says, and ask for `/livez` meanwhile."""
    try:
        begun = worker.ask({"kind": "begin"})
        with _probing(begun.get("pages", begun["port"])) as probes:
            send(begun["port"], job)
        measured = worker.ask({"kind": "end"})
    except WorkerLostError as lost:
        worker.stop()
        return Measured({BROKEN.name: 1.0}, f"the server's process: {lost.args[0]}")
    values = {**measured["values"], LIVEZ.name: probes.slowest}
    note = measured["note"]
    if probes.unanswered >= _UNANSWERED:
        values[BROKEN.name] = 1.0
        note = f"{probes.unanswered} probes in a row had no answer within {_PROBE_PATIENCE_SECONDS:g} s"
    return Measured(values, note)


class _probing:  # noqa: N801 - a block
    """Asks for `/livez` every 50 ms on new connections, inside the block."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._end = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.slowest = 0.0
        self.unanswered = self._row = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(_PROBE_EVERY_SECONDS):
            begun = monotonic()
            answered = _probe(self._port)
            self.slowest = max(self.slowest, monotonic() - begun)
            self._row = 0 if answered else self._row + 1
            self.unanswered = max(self.unanswered, self._row)


def _probe(port: int) -> bool:
    with (
        suppress(OSError),
        socket.create_connection(("127.0.0.1", port), timeout=_PROBE_PATIENCE_SECONDS) as connection,
    ):
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return connection.recv(64).startswith(b"HTTP/1.1 200")
    return False


def _send(port: int, job: Job) -> None:
    if "body" in job:
        _post(port, str(job["path"]), _body(job["body"]))
    else:
        _hold(port, job)


def _post(port: int, path: str, body: bytes) -> None:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS) as connection:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode() + body)
        while connection.recv(1 << 20):
            pass


def _hold(port: int, job: Job) -> None:
    """Keep connections open: with nothing, with half a head, or with a body that does not end."""
    filler = b"x" * min(int(job["bytes"]), _BODY_BYTES)
    with ExitStack() as held, suppress(OSError):
        for _ in range(int(job["count"])):
            connection = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=2.0))
            if job["form"] == 1:
                connection.sendall(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nA: ")
            elif job["form"] == 2:
                with suppress(OSError):
                    connection.sendall(
                        b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 32000000\r\n\r\n"
                        + filler
                    )
        Event().wait(4 * _PROBE_PATIENCE_SECONDS if int(job["count"]) > 200 else 1.0)


def _names(count: int, length: int, *, same: bool = False) -> list[str]:
    return [("n" if same else f"n{place}").ljust(length, "x") for place in range(count)]


def _filtering(count: int, length: int, form: int) -> Mapping[str, Any]:
    names = _names(count, length, same=form % 2 == 1)
    nodes: Mapping[str, Any] = {"Nodes": {"items": [{"metadata": {"name": name}} for name in names]}}
    return {"Pod": _pod(), **(nodes if form > 1 else {"NodeNames": names})}


def _preempting(count: int, length: int, form: int) -> Mapping[str, Any]:
    victims = [{"UID": name} for name in _names(count, length, same=form % 2 == 1)]
    if form > 1:
        return {
            "Pod": _pod(),
            "NodeNameToMetaVictims": {name: {"Pods": [{"UID": name}]} for name in _names(count, length)},
        }
    return {"Pod": _pod(), "NodeNameToMetaVictims": {"node-1": {"Pods": victims, "NumPDBViolations": 0}}}


def _claiming(count: int, length: int, form: int) -> Mapping[str, Any]:
    entries = [{"name": name, "resourceClaimName": name} for name in _names(count, length, same=form % 2 == 1)]
    pod = _pod()
    containers = [{"name": each["name"], "resources": {"requests": {each["name"]: "1"}}} for each in entries]
    pod["spec"] = {"containers": containers} if form > 1 else {"resourceClaims": entries}
    return {"Pod": pod, "NodeNames": ["node-1"]}


def _binding(count: int, length: int, form: int) -> Mapping[str, Any]:
    text = "x" * min(length * count, _BODY_BYTES)
    fields = ("PodName", "PodNamespace", "PodUID", "Node")
    return {field: text if place == form % 4 else "x" for place, field in enumerate(fields)}


def _nesting(count: int, _: int, form: int) -> bytes:
    opened, closed = ((b"[", b"]"), (b'{"a":', b"}"), (b'{"Pod":', b"}"), (b'{"Pod":{"metadata":', b"}}"))[form % 4]
    return opened * count + b"1" + closed * count


def _numbers(count: int, _: int, form: int) -> bytes:
    digits = (b"9" * count, b"1e" + b"9" * count, b"0." + b"0" * count + b"1", b"-" + b"1" * count)[form % 4]
    return b'{"Pod":{"spec":{"priority":' + digits + b'}},"NodeNames":[]}'


def _keys(count: int, length: int, form: int) -> bytes:
    key = ("a", "Pod", "\\u0061", "NodeNames")[form % 4]
    pairs = (f'"{key if form > 1 else key + str(place).ljust(length, "x")}":{{}}' for place in range(count))
    return ("{" + ",".join(pairs) + "}").encode()


def _pod() -> dict[str, Any]:
    return {"metadata": {"name": "p", "namespace": "evil", "uid": "u"}, "spec": {}}


_SHAPES: Final[Mapping[str, Callable[[int, int, int], Any]]] = {
    "names": _filtering,
    "victims": _preempting,
    "claims": _claiming,
    "texts": _binding,
    "nesting": _nesting,
    "numbers": _numbers,
    "keys": _keys,
}
_FITTING: Final = {"names": (0, 2), "victims": (1,), "claims": (0, 2), "texts": (3,)}


def _body(given: Any) -> bytes:
    shape, count, length, form = given
    made = _SHAPES[shape](count, length, form)
    return made if isinstance(made, bytes) else json.dumps(made).encode()


def _bodies(shape: str) -> Subject[Gene]:
    def make(random: Random) -> Gene:
        numbers = (
            random.randrange(4, _MOST_COUNT),
            random.randrange(9),
            random.randrange(4),
            random.choice(_FITTING.get(shape, (0, 1, 2))),
        )
        return Gene("body", numbers)

    def change(random: Random, gene: Gene) -> Gene:
        count, length, form, path = gene.numbers
        return replace(
            gene,
            numbers=(
                min(count + random.choice((-1, 1, 2)), 20),
                max(0, length + random.choice((-2, 0, 2))),
                form,
                path,
            ),
        )

    def job(gene: Gene) -> Job | None:
        count, length, form, path = gene.numbers
        most = _BODY_BYTES // (2 ** min(length, 12) + 30)
        body = (shape, min(2 ** max(0, count), most), 2 ** min(length, 12), form)
        return {"kind": ATTACK, "path": _PATHS[path], "body": body}

    return Subject(f"body of {shape}", make, change, job, lambda gene: str(job(gene)), fewer)


def _connections() -> Subject[Gene]:
    def make(random: Random) -> Gene:
        return Gene("held", (random.randrange(2, 11), random.randrange(3), random.choice((0, 16, 20, 24))))

    def change(random: Random, gene: Gene) -> Gene:
        count, form, size = gene.numbers
        return replace(
            gene, numbers=(min(count + random.choice((-1, 1)), 11), form, min(size + random.choice((0, 1)), 25))
        )

    def job(gene: Gene) -> Job | None:
        count, form, size = gene.numbers
        connections = min(2**count, _MOST_CONNECTIONS, 2**31 // 2**size if form == 2 else 2**31)
        return {"kind": ATTACK, "count": connections, "form": form, "bytes": 2**size}

    return Subject("connections held", make, change, job, lambda gene: str(job(gene)), fewer)


PART: Final = Part("http", MODULE, lambda _: [(LIMITS, [*map(_bodies, _SHAPES), _connections()])], CPU_SECONDS, attack)
"""Search for requests that stall the server."""
