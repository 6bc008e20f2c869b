"""Probe of a whole service that many large objects were delivered to: how long what goes over them holds its loop."""

from time import sleep
from typing import Any, Final

from tests.hostile.probe_objects import copies
from tests.hostile.service_host import NODES, ServiceHost, pod_of

_LEAST: Final = 3
_FLOOD_BYTES: Final = 16 * 2**20
_MOST: Final = 1_000
_SETTLE_SECONDS: Final = 0.12
_TICKS_SECONDS: Final = 0.8
"""In which reclaim, wake-ups and reports each have a turn."""
_SETTINGS: Final = {"scheduling": {"reclaim_interval_seconds": 0.5, "reclaim_grace_seconds": 1.0}}
_HOSTS: Final[list[ServiceHost]] = []


def loops(job: dict[str, Any]) -> dict[str, Any]:
    """Fill a whole service with copies of an object, and see how long its loop is held by what goes over them."""
    if not _HOSTS:
        _HOSTS.append(ServiceHost(_SETTINGS))
    host, kind = _HOSTS[0], job["plural"]
    host.stall()
    template = job["object"]
    count = max(_LEAST, min(_MOST, _FLOOD_BYTES // len(template.encode(errors="surrogatepass"))))
    texts = [
        copy.decode(errors="surrogatepass")
        for copy in copies(template.encode(errors="surrogatepass"), count, versions=1)
    ]
    for text in texts:
        host.deliver(kind, "ADDED", text)
    sleep(_SETTLE_SECONDS)
    if kind == "resourceclaims":
        for place in range(3):
            pod = pod_of(f"evil-{place}", "evil", claims=[f"evil-{place}"])
            host.store("pods", pod)
            host.call("/filter", {"Pod": pod, "NodeNames": list(NODES)})
    found = host.victim()
    sleep(_TICKS_SECONDS)
    found = host.victim() or found or host.trouble()
    stall = host.stall()
    for place, text in enumerate(texts):
        host.deliver(kind, "DELETED", text)
        if kind == "resourceclaims" and place < 3:
            host.remove("pods", "evil", f"evil-{place}")
    sleep(_SETTLE_SECONDS)
    stall = max(stall, host.stall())
    if found is not None:
        _HOSTS.clear()
    return {"values": {"stall": stall, **({"broken": 1.0} if found else {})}, "note": found or f"{count} objects"}
