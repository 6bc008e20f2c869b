"""A whole service over a scripted API server, inside of a probe: what is delivered to it, and whether it still serves a victim."""

import asyncio
import json
import logging
import ssl
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic, sleep, thread_time
from typing import Any, Final

import structlog
from dra_extender.config.settings import load_settings
from dra_extender.runtime import installation
from dra_extender.runtime.clock import SystemClock
from dra_extender.service.server import listen
from dra_extender.service.wiring import assemble, kube_cluster, kube_settings
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.telemetry.metrics import Metrics

from tests.simulation.api_server import ApiServer
from tests.support.api.tls import caller, issuer

DRIVER: Final = "gpu.example.com"
NODES: Final = ("node-1", "node-2")
_JSON: Final = {"Content-Type": "application/json"}
_TICK_SECONDS: Final = 0.005
_READY_SECONDS: Final = 60.0
_PATIENCE_SECONDS: Final = 5.0
_DEVICES: Final = 8
_MAY_END: Final = "group-claims"
"""The task that ends by itself: claims of PodGroups are left to another controller when there is one."""


class ServiceHost:
    """The service in one thread, the API server in another; calls are made from a third."""

    def __init__(self, settings: Json | None = None, *, tls: bool = False) -> None:
        """Start both, the service with these settings beside its own, and wait until it is ready.

        With `tls`, the verbs are served over TLS at `port`, and probes without at `pages`; else these two are the same.
        """
        self._settings = settings or {}
        self._tls = tls
        self._caller: ssl.SSLContext | None = None
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR), processors=[self.on_log]
        )
        logging.disable(logging.CRITICAL)
        self._folder = Path(tempfile.mkdtemp(prefix="dra-extender-hostile-"))
        self._closing = AsyncExitStack()
        self._api_loop = _loop_in_thread()
        # What a handshake takes differs by event loop.
        self._loop = _loop_in_thread(installation.new_event_loop if tls else asyncio.new_event_loop)
        self._victims = 0
        self._longest = 0.0
        self.problems: list[str] = []
        self.api: ApiServer = _wait(self._api_loop, self._start_api())
        _wait(self._loop, self._start_service())
        self._until_ready()
        self._tasks = _wait(self._loop, _running())

    async def _start_api(self) -> ApiServer:
        server = ApiServer(SystemClock())
        for kind, thing in _cluster():
            server.put(StoredKind(kind), thing)
        await server.start()
        return server

    async def _start_service(self) -> None:
        asyncio.get_running_loop().set_exception_handler(self._on_problem)
        kubeconfig = self.api.kubeconfig(self._folder / "kubeconfig")
        given: dict[str, Json] = {"server": {"host": "127.0.0.1", "port": 0}, "cluster": {"kubeconfig": kubeconfig}}
        if self._tls:
            ours = issuer(self._folder / "certificates")
            files = dict(zip(("cert_file", "private_key_file"), ours.server(), strict=True))
            given |= {"tls": {**files, "client_ca_file": ours.bundle()}, "probes": {"host": "127.0.0.1", "port": 0}}
            self._caller = caller(ours.bundle(), ours.client())
        settings = load_settings(None, {**given, "leader_election": {"enabled": False}, **self._settings})
        metrics = Metrics()
        service = assemble(settings, kube_cluster(kube_settings(settings), metrics), metrics)
        listener = self._closing.enter_context(listen(settings.server.host, settings.server.port))
        self.port = self.pages = int(listener.getsockname()[1])
        probes = self._closing.enter_context(listen("127.0.0.1", 0)) if self._tls else None
        if probes is not None:
            self.pages = int(probes.getsockname()[1])
        self._ends = [
            asyncio.create_task(service.serve(asyncio.Event(), listener, probes)),
            asyncio.create_task(self._tick()),
        ]

    def _on_problem(self, _: asyncio.AbstractEventLoop, context: Json) -> None:
        self.problems.append(f"{context.get('message')}: {context.get('exception')!r}"[:300])

    def on_log(self, _: Any, __: str, record: MutableMapping[str, Any]) -> Any:
        """A background task that raises is in trouble, whoever starts it again; an object that is skipped by name is not."""
        problem = record.get("exc_info")
        if problem and "kind" not in record:
            shown = repr(sys.exception() if problem is True else problem)
            self.problems.append(f"{record.get('event')} ({record.get('task', record.get('verb', ''))}): {shown}"[:300])
        raise structlog.DropEvent

    async def _tick(self) -> None:
        last = thread_time()
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            now = thread_time()
            self._longest = max(self._longest, now - last)
            last = thread_time()

    def stall(self) -> float:
        """The longest CPU in which the service's loop did nothing else, since this was asked last."""
        _wait(self._loop, asyncio.sleep(2 * _TICK_SECONDS))
        longest, self._longest = self._longest, 0.0
        return longest

    def deliver(self, kind: str, verb: str, text: str) -> None:
        """Send an event with this JSON as its object, whatever it is, to the watches of a kind."""
        line = f'{{"type":{json.dumps(verb)},"object":{text}}}\n'.encode(errors="surrogatepass")
        _wait(self._api_loop, _called(lambda: self.api.send(StoredKind(kind), line)))

    def store(self, kind: str, thing: Json) -> None:
        """Store an object that lists and watches bring."""
        _wait(self._api_loop, _called(lambda: self.api.put(StoredKind(kind), thing)))

    def remove(self, kind: str, namespace: str, name: str) -> None:
        """Delete a stored object."""
        _wait(self._api_loop, _called(lambda: self.api.store.delete(Key(StoredKind(kind), namespace, name))))

    def victim(self) -> str | None:
        """Let a neighbour's pod be filtered; why it finds no node, None if it does."""
        self._victims += 1
        name = f"victim-{self._victims}"
        pod, claim = pod_of(name, "victims", claims=[name]), claim_of(name, "victims")
        self.store("resourceclaims", claim)
        self.store("pods", pod)
        told: Any = "no answer"
        end = monotonic() + _PATIENCE_SECONDS
        try:
            while monotonic() < end:
                told = self.call("/filter", {"Pod": pod, "NodeNames": list(NODES)})
                if isinstance(told, dict) and told.get("NodeNames"):
                    return None
                sleep(0.05)
        finally:
            self.remove("pods", "victims", name)
            self.remove("resourceclaims", "victims", name)
        return f"the victim's pod finds no node: {json.dumps(told)[:200]}"

    def call(self, path: str, body: Any) -> Any:
        """What the service answers, or a sentence about why it does not."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        scheme = "https" if self._tls else "http"
        request = urllib.request.Request(f"{scheme}://127.0.0.1:{self.port}{path}", data, _JSON)  # noqa: S310
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS, context=self._caller) as answer:  # noqa: S310
                return json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return f"{refused.code} {refused.read()[:200]!r}"
        except OSError as problem:
            return f"{type(problem).__name__}: {problem}"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; 0 if nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.pages}{path}", timeout=_PATIENCE_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()
        except OSError as problem:
            return 0, f"{type(problem).__name__}: {problem}"

    def trouble(self) -> str | None:
        """What is wrong now: a task that ended, a fault nobody handled, or a readiness that gives no reason."""
        ended = self.ended()
        if ended is not None:
            return ended
        status, text = self.get("/readyz")
        return None if status == 200 or text.strip() else f"/readyz says {status} without a reason"

    def ended(self) -> str | None:
        """The background tasks that ended or raised since this was asked last."""
        ended = self._tasks - _wait(self._loop, _running())
        problems = ", ".join(dict.fromkeys(self.problems[:3]))
        self.problems.clear()
        if ended:
            return f"tasks ended: {', '.join(sorted(ended))} ({problems})"
        return problems or None

    def _until_ready(self) -> None:
        end = monotonic() + _READY_SECONDS
        while self.get("/readyz")[0] != 200:
            if monotonic() > end:
                raise TimeoutError(f"the service is not ready: {self.get('/readyz')}, {self.problems}")
            sleep(0.05)


def _loop_in_thread(
    make: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> asyncio.AbstractEventLoop:
    loop = make()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop


def _wait(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run_coroutine_threadsafe(work, loop).result(timeout=120)


async def _called(call: Callable[[], object]) -> None:
    call()


async def _running() -> Counter[str]:
    tasks = [task for task in asyncio.all_tasks() if not task.done() and task.get_name() != _MAY_END]
    names = [getattr(task.get_coro(), "__qualname__", "") for task in tasks]
    return Counter(name for name in names if not name.endswith(("_running", "run_asgi", "sleep")))


def _cluster() -> Iterator[tuple[str, Json]]:
    yield (
        "deviceclasses",
        {"metadata": _metadata("gpu"), "spec": {"selectors": [_selector(f"device.driver == '{DRIVER}'")]}},
    )
    yield "deviceclasses", {"metadata": _metadata("all"), "spec": {}}
    backing = {
        "selectors": [_selector("device.driver == 'evil.example.com'")],
        "extendedResourceName": "example.com/evil",
    }
    yield "deviceclasses", {"metadata": _metadata("backing"), "spec": backing}
    values = [
        {"name": f"e{place}", "attributes": {"v": {"int": place % 11}, "w": {"string": f"w{place % 3}"}}}
        for place in range(32)
    ]
    pool = {"name": "evil", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "evil.example.com", "nodeName": NODES[0], "pool": pool, "devices": values}
    yield "resourceslices", {"metadata": _metadata("slice-evil"), "spec": spec}
    for node in NODES:
        yield (
            "nodes",
            {"metadata": {**_metadata(node), "labels": {"kubernetes.io/hostname": node}}, "spec": {}, "status": {}},
        )
        yield "resourceslices", slice_of(f"slice-{node}", node)


def slice_of(name: str, node: str, driver: str = DRIVER) -> Json:
    """A slice with a few devices."""
    devices = [{"name": f"gpu-{place}", "attributes": {"model": {"string": "a100"}}} for place in range(_DEVICES)]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {"metadata": _metadata(name), "spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": devices}}


def claim_of(name: str, namespace: str, selector: str = "device.attributes['gpu.example.com'].model == 'a100'") -> Json:
    exactly = {"deviceClassName": "gpu", "selectors": [_selector(selector)], "allocationMode": "ExactCount", "count": 1}
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    return {"metadata": {**_metadata(name), "namespace": namespace}, "spec": spec, "status": {}}


def pod_of(name: str, namespace: str, claims: list[str]) -> Json:
    entries = [{"name": f"claim-{place}", "resourceClaimName": claim} for place, claim in enumerate(claims)]
    spec = {"schedulerName": "dra-scheduler", "containers": [{"name": "c"}], "resourceClaims": entries}
    return {"metadata": {**_metadata(name), "namespace": namespace}, "spec": spec, "status": {"phase": "Pending"}}


def _selector(expression: str) -> Json:
    return {"cel": {"expression": expression}}


def _metadata(name: str) -> Json:
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
