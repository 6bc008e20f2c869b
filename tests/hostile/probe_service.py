"""Probes of a whole service: what tenants write is delivered to it, and a neighbour's pod has to be served meanwhile."""

import json
from itertools import count
from time import sleep
from typing import Any

from tests.hostile.measuring import forget_peak, peak, resident
from tests.hostile.service_host import NODES, ServiceHost

_SETTLE_SECONDS = 0.12
HOSTS: list[ServiceHost] = []
_BEFORE: list[int] = []
_JOBS = count()


def _host() -> ServiceHost:
    if not HOSTS:
        HOSTS.append(ServiceHost())
        HOSTS[0].victim()
    HOSTS[0].stall()
    return HOSTS[0]


def begin(_: dict[str, Any]) -> dict[str, Any]:
    """Where the service listens, with everything measured from now on."""
    host = _host()
    _BEFORE[:] = [resident()]
    forget_peak()
    return {"port": host.port}


def end(_: dict[str, Any]) -> dict[str, Any]:
    """What happened since the beginning."""
    host = HOSTS[0]
    grown = float(max(0, peak() - _BEFORE[0]))
    return _judged(host, host.stall(), grown, host.victim())


def informer(job: dict[str, Any]) -> dict[str, Any]:
    """Deliver events, each as (kind, verb, JSON), and let a victim be scheduled."""
    host = _host()
    before = resident()
    forget_peak()
    events = json.loads(_renamed(json.dumps(job["events"])))
    for kind, verb, text in events:
        host.deliver(kind, verb, text)
    sleep(_SETTLE_SECONDS)
    found = host.victim()
    sleep(_SETTLE_SECONDS)
    grown = float(max(0, peak() - before))
    judged = _judged(host, host.stall(), grown, found)
    for kind, verb, text in events:
        if verb != "DELETED" and len(text) < 2**20:
            host.deliver(kind, "DELETED", text)
    return judged


def search(job: dict[str, Any]) -> dict[str, Any]:
    """Let pods with hard claims be filtered, a victim in between."""
    host = _host()
    before = resident()
    forget_peak()
    pods = json.loads(_renamed(json.dumps(job["pods"])))
    stored = [(kind, thing) for pod in pods for kind, thing in (("resourceclaims", pod[0]), ("pods", pod[1]))]
    for kind, thing in stored:
        host.store(kind, thing)
    sleep(_SETTLE_SECONDS)
    found = None
    for _, pod in pods:
        told = host.call("/filter", {"Pod": pod, "NodeNames": list(NODES)})
        if not isinstance(told, dict):
            found = f"the attacker's filter call: {told}"
        found = found or host.victim()
    sleep(2 * _SETTLE_SECONDS)
    judged = _judged(host, host.stall(), float(max(0, peak() - before)), found)
    for kind, thing in reversed(stored):
        host.remove(kind, thing["metadata"]["namespace"], thing["metadata"]["name"])
    return judged


def _renamed(text: str) -> str:
    """Objects of another job have other names and UIDs."""
    return text.replace("evil-", f"evil-{next(_JOBS)}-")


def _judged(host: ServiceHost, stall: float, grown: float, found: str | None) -> dict[str, Any]:
    values = {"stall": stall, "grown": grown}
    found = found or host.trouble()
    if found is not None:
        values["broken"] = 1.0
        HOSTS.clear()
    return {"values": values, "note": found or json.dumps({"readyz": host.get("/readyz")[0]})}
