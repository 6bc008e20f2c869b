"""What the account of the service asks API servers in tests, from their audit logs."""

import json
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

from tests.controlplane.objects import Object

SERVICE_USER: Final = "system:serviceaccount:dra-extender:dra-extender"
"""The account of the service as `deploy/` names it."""
_FORBIDDEN: Final = 403


class Asked(NamedTuple):
    """A request by its right: verb, API group, resource with subresource, and the object's name where there is one."""

    verb: str
    group: str
    resource: str
    name: str
    denied: bool


def write_audit_policy(path: Path) -> None:
    """A policy that logs who asks for what, without bodies, for the account of the service alone."""
    rules = [{"level": "Metadata", "users": [SERVICE_USER]}, {"level": "None"}]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": rules}
    path.write_text(json.dumps(policy))


def asked_in(log: Path, begin: int = 0, starts: Collection[range] = ()) -> frozenset[Asked]:
    """Return the requests in an audit log, each kind once.

    A path such as /metrics stands for the resource of a request without one.

    Args:
        log: The audit log; it may not exist yet.
        begin: The byte to begin with.
        starts: Bytes that an API server wrote before it was ready.  Denials in them are left out: until it has read the roles, it
            denies everything.
    """
    if not log.exists():
        return frozenset()
    requests, position = set[Asked](), begin
    for line in log.read_bytes()[begin:].splitlines(keepends=True):
        if line.strip() and line.endswith(b"\n"):
            asked = _asked(json.loads(line))
            if not (asked.denied and any(position in start for start in starts)):
                requests.add(asked)
        position += len(line)
    return frozenset(requests)


def _asked(event: Object) -> Asked:
    code = event.get("responseStatus", {}).get("code")
    decision = event.get("annotations", {}).get("authorization.k8s.io/decision")
    denied = code == _FORBIDDEN and decision == "forbid"
    reference = event.get("objectRef")
    if reference is None:
        return Asked(event["verb"], "", event["requestURI"].partition("?")[0], "", denied)
    resource = "/".join(part for part in (reference.get("resource"), reference.get("subresource")) if part)
    return Asked(event["verb"], reference.get("apiGroup", ""), resource, reference.get("name", ""), denied)
