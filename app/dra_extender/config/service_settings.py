"""Settings of the process itself: its listeners, the API server, leader election, background work and log lines.

A caller that reaches the verbs can bind pods.  So they are served on loopback, or over TLS to callers with a certificate, or
over plain HTTP on a reachable address if an administrator says so.
"""

import json
from base64 import urlsafe_b64decode
from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BaseModel, ConfigDict, Field, IPvAnyAddress, StringConstraints, model_validator

from dra_extender.telemetry.logging import LogFormat, LogLevel

EVERY_ADDRESS: Final = "*"
"""Stands for all addresses of both families."""
SCHEDULER_NAME: Final = "system:kube-scheduler"
"""The common name by which the API server knows kube-scheduler (kubeadm's scheduler.conf)."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds its namespace and the token of its account."""

HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]([-_.A-Za-z0-9]*[A-Za-z0-9_])?$", max_length=253)]


class SettingsGroup(BaseModel):
    """Base of the groups: unknown settings are refused, and numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MetricsAccess(StrEnum):
    """Who may read metrics at the address of the probes."""

    OPEN = "open"
    AUTHORIZED = "authorized"
    OFF = "off"


class ProbeSettings(SettingsGroup):
    """The listener for kubelet's probes and for metrics (docs/operate/listeners.md)."""

    host: str = Field(EVERY_ADDRESS, min_length=1, description="Address to listen on; `*` for all, IPv4 and IPv6")
    port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port to listen on; default: probes and metrics are served only with the verbs",
    )
    metrics: MetricsAccess = Field(
        MetricsAccess.OPEN,
        description="Who may read metrics there: all callers, callers with a token of the cluster that may `get` the"
        " non-resource URL `/metrics` (then the listener speaks TLS), or none",
    )


class TlsSettings(SettingsGroup):
    """Certificates; changed files are taken up without a restart (docs/operate/listeners.md)."""

    cert_file: Path | None = Field(None, description="Certificate of the service with its chain, in PEM")
    private_key_file: Path | None = Field(None, description="Its private key, in PEM")
    client_ca_file: Path | None = Field(
        None,
        description="Certificates of the authorities of kube-scheduler's client certificate, in PEM; with it the verbs are"
        " served only over TLS, to callers with a certificate of these",
    )
    allowed_names: tuple[str, ...] = Field(
        (SCHEDULER_NAME,),
        max_length=64,
        description="Names of callers of the verbs, each a common name or a DNS name in the client certificate; empty: every"
        " certificate of the authorities",
    )
    check_seconds: float = Field(
        10.0, ge=0.1, le=3600, description="Seconds between two checks of the files for changes"
    )

    @model_validator(mode="after")
    def _check_pairs(self) -> Self:
        if (self.cert_file is None) is not (self.private_key_file is None):
            raise ValueError("cert_file and private_key_file belong together; one of them is not set")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("client_ca_file is set, but cert_file is not: there is no TLS without a certificate")
        return self

    @property
    def serves_verbs(self) -> bool:
        """Return whether the verbs are served over TLS, to callers with a certificate."""
        return self.client_ca_file is not None


def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine's own, IPv4 in the form of IPv6 included."""
    try:
        ip = ip_address(address)
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, IPv6Address) else None
    return (mapped or ip).is_loopback


class ServerSettings(SettingsGroup):
    """The HTTP server that kube-scheduler calls, and what callers may use of it."""

    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="Address on which the verbs are served; `*` for all, IPv4 and IPv6. Another one than loopback needs TLS"
        " with client certificates (group `tls`), or `plain_http`",
    )
    port: int = Field(8080, ge=0, le=65535, description="Port on which the verbs are served; 0 chooses a free one")
    plain_http: bool = Field(
        False, description="Serve the verbs over plain HTTP on any address: every caller that reaches it can bind pods"
    )
    allowed_hosts: tuple[HostName, ...] = Field(
        (),
        max_length=64,
        description="Further names that the Host header of a request may have, without port. Without client certificates"
        " it must be an address, or a name that is not under a public domain, such as localhost, `name.namespace.svc` and"
        " `name.namespace.svc.cluster.local` (docs/operate/listeners.md)",
    )
    body_limit_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, le=1024**3, description="Largest request body accepted, in bytes"
    )
    in_flight_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        le=1024**4,
        description="Most bytes of unanswered requests and unsent responses, over all callers",
    )
    receive_seconds: float = Field(
        10.0,
        ge=1,
        le=3600,
        description="Seconds within which a caller must have sent its request, and within which it must have"
        " received the response; the time between the two is not limited",
    )
    connections: int = Field(
        4096,
        ge=16,
        le=65536,
        description="Most connections; fewer where the process may not open so many files."
        " Beyond that, the caller with most connections loses the one that has been idle for longest",
    )
    keep_alive_seconds: int = Field(
        120,
        gt=90,
        le=3600,
        description="Seconds after which an idle connection is closed; must exceed the 90 s for which Go keeps one",
    )
    stop_seconds: int = Field(
        25, ge=1, le=3600, description="Seconds after a signal to stop until unanswered calls are cancelled"
    )

    @model_validator(mode="after")
    def _room_for_bodies(self) -> Self:
        if self.in_flight_bytes < 2 * self.body_limit_bytes:
            raise ValueError(
                f"in_flight_bytes ({self.in_flight_bytes}) must be at least twice body_limit_bytes ({self.body_limit_bytes}), "
                "or one caller could keep all others out"
            )
        return self


class ClusterSettings(SettingsGroup):
    """The API server."""

    kubeconfig: Path | None = Field(
        None, description="kubeconfig file; default: $KUBECONFIG, else the pod's service account, else ~/.kube/config"
    )
    context: str | None = Field(None, min_length=1, description="Context of the kubeconfig; default: its current one")
    startup_timeout_seconds: float = Field(
        60.0,
        ge=0,
        le=3600,
        description="Seconds to wait at start for an API server that does not answer or refuses with 403",
    )
    expected_account: str | None = Field(
        None,
        pattern="^system:serviceaccount:[^:]+:[^:]+$",
        max_length=512,
        description="User name of the account that the admission policy lets write snapshots of allocations; a pod with"
        " another account does not start. Default: not checked",
    )

    def known_account(self) -> str | None:
        """Return the user name of this pod's account, as its token has it; None without such a token or with a kubeconfig."""
        if self.kubeconfig is not None:
            return None
        try:
            payload = (_ACCOUNT / "token").read_text(encoding="utf-8").split(".")[1]
            return str(json.loads(urlsafe_b64decode(payload + "=="))["sub"])
        except (OSError, ValueError, LookupError, TypeError):
            return None


class LeaderElectionSettings(SettingsGroup):
    """One replica of several acts at a time (docs/operate/high-availability.md)."""

    enabled: bool = Field(False, description="Act only while this replica holds the Lease")
    lease_name: str = Field("dra-extender", min_length=1, max_length=253, description="Name of the Lease")
    namespace: str | None = Field(
        None, min_length=1, max_length=63, description="Namespace of Lease and Service; default: the pod's own"
    )
    duration_seconds: int = Field(
        15, ge=1, le=3600, description="Seconds without renewal after which another replica may lead"
    )
    renew_seconds: float = Field(
        10.0, gt=0, le=3600, description="Seconds without successful renewal after which the leader stops acting"
    )
    retry_seconds: float = Field(2.0, gt=0, le=600, description="Seconds between two tries to get or renew the Lease")
    follow_lease: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        description="Lease of kube-schedulers that each call the replica in their own pod: this replica leads"
        " while the kube-scheduler beside it holds that Lease",
    )
    host: str | None = Field(
        None, min_length=1, max_length=253, description="Name of this replica's pod; default: the host name"
    )
    service: str | None = Field(
        None,
        min_length=1,
        max_length=63,
        description="Service without selector whose endpoint is the leader; default: none",
    )
    address: IPvAnyAddress | None = Field(
        None, description="Address of this replica's pod, for the endpoint of that Service"
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.duration_seconds <= self.renew_seconds:
            raise ValueError(
                f"duration_seconds ({self.duration_seconds}) must be greater than renew_seconds ({self.renew_seconds:g}), "
                "or two replicas would act at once"
            )
        if self.renew_seconds < 2 * self.retry_seconds:
            raise ValueError(
                f"renew_seconds ({self.renew_seconds:g}) must be at least twice retry_seconds ({self.retry_seconds:g}), "
                "or one failed renewal would end the term"
            )
        if self.service is not None and self.address is None:
            raise ValueError("service is set, but address is not: the Service could not be pointed anywhere")
        return self

    def known_namespace(self) -> str | None:
        """Return the namespace that is set, else that of this pod; None if there is neither."""
        if self.namespace is not None:
            return self.namespace
        try:
            return (_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
        except OSError:
            return None


class AuditSettings(SettingsGroup):
    """The audit that the service makes of its caches (docs/operate/audit.md)."""

    enabled: bool = Field(True, description="Look for what is wrong in the cluster, and count it in the metrics")
    interval_seconds: float = Field(60.0, ge=1, le=86400, description="Seconds between two audits")


class MetricsSettings(SettingsGroup):
    """What is counted for the metrics in the background (docs/reference/metrics.md)."""

    devices_enabled: bool = Field(True, description="Count the devices of each driver by state")
    devices_interval_seconds: float = Field(30.0, ge=1, le=3600, description="Seconds between two counts")


class TracingSettings(SettingsGroup):
    """Traces over OTLP (docs/reference/traces.md)."""

    enabled: bool = Field(False, description="Send a trace of each scheduling attempt; needs the extra `tracing`")
    endpoint: str | None = Field(
        None,
        pattern="^https?://",
        max_length=2048,
        description="URL that takes traces over OTLP/HTTP, with its path; default: OTEL_EXPORTER_OTLP_ENDPOINT, else the"
        " port 4318 of this host",
    )


class LogSettings(SettingsGroup):
    """Log lines on standard error."""

    format: LogFormat = Field(LogFormat.JSON, description="json for machines, text for people")
    level: LogLevel = Field(LogLevel.INFO, description="Messages below this level are not logged")
