"""The KubeSchedulerConfiguration with which kube-scheduler calls this service; docs/configuration-scheduler.md has the reasons."""

from dataclasses import dataclass
from typing import Any, Final

from dra_extender.config.scheduling_settings import FILTER_HTTP_SECONDS, bind_http_seconds

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
PLUGIN: Final = "DynamicResources"
VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}


@dataclass(frozen=True, slots=True)
class SchedulerSetup:
    """What differs between clusters.

    `url` is where kube-scheduler finds the service, `authority` the file with the certificate authority that it trusts there (for
    https), `server_name` the name in that certificate if it is another than the URL's; `client_certificate` has the files of
    kube-scheduler's own one and its key.  `qps` and `burst` limit kube-scheduler's own requests.  `binding_timeout` is in seconds.
    """

    url: str = "http://127.0.0.1:8080"
    scheduler_name: str = "dra-extender-scheduler"
    namespace: str = "dra-extender"
    binding_timeout: float = 600.0
    qps: int = 2000
    burst: int = 4000
    authority: str | None = None
    server_name: str | None = None
    client_certificate: tuple[str, str] | None = None


def render(setup: SchedulerSetup) -> dict[str, Any]:
    """The document, in the order in which people read it."""
    plugins = {"multiPoint": {"disabled": [{"name": PLUGIN}]}}
    choosing = {name: VERBS[name] for name in ("filterVerb", "prioritizeVerb", "preemptVerb")}
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "clientConnection": {"qps": setup.qps, "burst": setup.burst},
        "leaderElection": {
            "leaderElect": True,
            "resourceName": setup.scheduler_name,
            "resourceNamespace": setup.namespace,
        },
        "percentageOfNodesToScore": 100,
        "profiles": [{"schedulerName": setup.scheduler_name, "plugins": plugins}],
        "extenders": [
            _stanza(setup, {**choosing, "weight": 2}, FILTER_HTTP_SECONDS),
            _stanza(setup, {"bindVerb": VERBS["bindVerb"]}, bind_http_seconds(setup.binding_timeout)),
        ],
    }


def _stanza(setup: SchedulerSetup, verbs: dict[str, Any], seconds: float) -> dict[str, Any]:
    https = setup.url.startswith("https://")
    certificate, key = setup.client_certificate or (None, None)
    files = {"caFile": setup.authority, "certFile": certificate, "keyFile": key, "serverName": setup.server_name}
    trust = {name: value for name, value in files.items() if value}
    return {
        "urlPrefix": setup.url,
        **verbs,
        "enableHTTPS": https,
        **({"tlsConfig": trust} if https else {}),
        "httpTimeout": f"{seconds:.12g}s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [],
    }
