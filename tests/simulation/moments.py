"""Moments in the traffic of the replicas at which a fault can be aimed, and what happens there."""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

from tests.simulation.network import SimulatedTransport

CLAIM, BINDING, LEASE, READ = SENT = (
    "a claim is written",
    "a Binding is posted",
    "the lease is renewed",
    "a claim is read",
)
FILTER, BIND = CALLED = ("filter is called", "bind is called")
MOMENTS: Final = (*SENT, *CALLED)
"""A replica hands such a request to a connection; kube-scheduler hands such a call of the extender to one."""
_PATHS: Final = (
    (BINDING, re.compile(rb"POST /api/v1/namespaces/[^/]+/pods/([^/]+)/binding")),
    (CLAIM, re.compile(rb"(?:PUT|PATCH|POST|DELETE) /apis/resource[^ ]+/resourceclaims/([^/? ]+)")),
    (READ, re.compile(rb"GET /apis/resource[^ ]+/resourceclaims/([^/? ]+)")),
    (LEASE, re.compile(rb"(?:PUT|POST) /apis/coordination[^ ]+/leases(?:/([^/? ]+))?")),
)
_CALLS: Final = {b"POST /filter": FILTER, b"POST /bind": BIND}
_POD: Final = re.compile(rb'"(?:PodName|name)":"([^"]+)"')


class _Armed(NamedTuple):
    moment: str
    left: int
    call: Callable[[str, str], None]


class Moments:
    """Calls what is armed once its moment has come so often, with the process and the name of the object that it is about."""

    def __init__(self) -> None:
        self._armed: list[_Armed] = []

    def arm(self, moment: str, count: int, call: Callable[[str, str], None]) -> None:
        """Call this at the `count`th of such moments from now."""
        self._armed.append(_Armed(moment, count, call))

    def disarm(self) -> None:
        """Let nothing happen any more."""
        self._armed.clear()

    def sent(self, transport: SimulatedTransport, data: bytes) -> None:
        """A replica or kube-scheduler hands these bytes to a connection."""
        if not self._armed:
            return
        found = _moment(data)
        if found is None:
            return
        moment, name = found
        armed, self._armed = self._armed, []
        for each in armed:
            if each.moment != moment:
                self._armed.append(each)
            elif each.left > 1:
                self._armed.append(_Armed(moment, each.left - 1, each.call))
            else:
                each.call(transport.process.name, name)


def _moment(data: bytes) -> tuple[str, str] | None:
    for start, moment in _CALLS.items():
        if data.startswith(start):
            found = _POD.search(data)
            return moment, "" if found is None else found.group(1).decode()
    for moment, path in _PATHS:
        found = path.match(data)
        if found is not None:
            return moment, (found.group(1) or b"").decode()
    return None
