"""Probes of a service whose verbs are served over TLS: a neighbour with a certificate has to be served while others have none."""

from typing import Any

from tests.hostile import probe_service
from tests.hostile.service_host import ServiceHost


def begin(job: dict[str, Any]) -> dict[str, Any]:
    """See probe_service; where the verbs are served over TLS, and `pages` without."""
    if not probe_service.HOSTS:
        probe_service.HOSTS.append(ServiceHost(tls=True))
        probe_service.HOSTS[0].victim()
    return probe_service.begin(job) | {"pages": probe_service.HOSTS[0].pages}


end = probe_service.end
