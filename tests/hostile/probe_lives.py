"""Probe of a whole service that sees objects change: after each event every background task has to be alive."""

import json
from itertools import count, islice
from time import sleep
from typing import Any, Final

from tests.hostile.measuring import forget_peak, peak, resident
from tests.hostile.service_host import NODES, ServiceHost, slice_of

_SETTINGS: Final = {
    "scheduling": {
        "wake_delay_seconds": 0.0,
        "wake_interval_seconds": 0.01,
        "reclaim_interval_seconds": 0.05,
        "reclaim_grace_seconds": 0.0,
        "group_claims_enabled": True,
    },
}
_TURN_SECONDS: Final = 0.01
_TICKS_SECONDS: Final = 0.15
_ENDING_TURNS: Final = 8
"""What looks at everything now and then, and what waits longer the more there is to do, has a turn in these."""
_HOSTS: Final[list[ServiceHost]] = []
_JOBS: Final = count()


def lives(job: dict[str, Any]) -> dict[str, Any]:
    """Deliver events one by one; each time a pod is asked about again, and a change of devices wakes those that wait."""
    if not _HOSTS:
        _HOSTS.append(ServiceHost(_SETTINGS))
    host, number = _HOSTS[0], next(_JOBS)
    host.stall()
    before = resident()
    forget_peak()
    found = None
    events = [(kind, verb, text.replace("evil-", f"evil-{number}-")) for kind, verb, text in job["events"]]
    pods: dict[str, dict[str, Any]] = {}
    for place, (kind, verb, text) in enumerate(events):
        host.deliver(kind, verb, text)
        if kind == "pods":
            _follow(pods, verb, json.loads(text))
        asked = next(islice(pods.values(), place % max(1, len(pods)), None), None)
        if asked is not None:
            told = host.call("/filter", {"Pod": asked, "NodeNames": list(NODES)})
            found = found or (f"the attacker's filter call: {told}" if not isinstance(told, dict) else None)
        _stir(host, f"{number}-{place}")
        sleep(_TURN_SECONDS)
        ended = host.ended()
        if ended is not None:
            found = f"{ended}, after {verb} of {kind}, event {place + 1} of {len(events)}"
            break
    for place in range(_ENDING_TURNS):
        if found is None:
            _stir(host, f"{number}-end-{place}")
            sleep(_TICKS_SECONDS)
            found = host.ended()
    found = found or host.victim() or host.trouble()
    values = {"stall": host.stall(), "grown": float(max(0, peak() - before))}
    if found is None:
        for kind, verb, text in events:
            if verb != "DELETED":
                host.deliver(kind, "DELETED", text)
        found = host.trouble()
    if found is not None:
        values["broken"] = 1.0
        _HOSTS.clear()
    return {"values": values, "note": found or "alive"}


def _follow(pods: dict[str, dict[str, Any]], verb: str, pod: dict[str, Any]) -> None:
    """The pods that kube-scheduler would ask about, by name."""
    name = pod["metadata"]["name"]
    pods.pop(name, None)
    if verb != "DELETED" and "nodeName" not in pod["spec"]:
        pods[name] = pod


def _stir(host: ServiceHost, what: str) -> None:
    """Change devices of both nodes, which may help a pod that waits."""
    for node in NODES:
        host.store("resourceslices", slice_of(f"slice-stir-{node}", node, f"stir-{what}.example.com"))
