"""Settings of the listeners: which address answers the verbs, which one probes and metrics, and over what.

A caller that reaches the verbs can bind pods.  So they are served on loopback, or over TLS to callers with a certificate, or
over plain HTTP on a reachable address if an administrator says so.
"""

from enum import StrEnum
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Final, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

EVERY_ADDRESS: Final = "*"
"""Stands for all addresses of both families."""
SCHEDULER_NAME: Final = "system:kube-scheduler"
"""The common name by which the API server knows kube-scheduler (kubeadm's scheduler.conf)."""
_LOCALHOST: Final = "localhost"


class SettingsGroup(BaseModel):
    """Base of the groups: unknown settings are refused, and numbers are finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class MetricsAccess(StrEnum):
    """Who may read metrics at the address of the probes."""

    OPEN = "open"
    AUTHORIZED = "authorized"
    OFF = "off"


class ProbeSettings(SettingsGroup):
    """The listener for kubelet's probes and for metrics (docs/tls.md)."""

    host: str = Field(EVERY_ADDRESS, min_length=1, description="Address to listen on; `*` for all, IPv4 and IPv6")
    port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="Port to listen on; default: probes and metrics are served with the verbs alone",
    )
    metrics: MetricsAccess = Field(
        MetricsAccess.OPEN,
        description="Who may read metrics there: all callers, callers with a token of the cluster that may `get` the"
        " non-resource URL `/metrics` (then the listener speaks TLS), or none",
    )


class TlsSettings(SettingsGroup):
    """Certificates; changed files are taken up without a restart (docs/tls.md)."""

    cert_file: Path | None = Field(None, description="Certificate of the service with its chain, in PEM")
    private_key_file: Path | None = Field(None, description="Its private key, in PEM")
    client_ca_file: Path | None = Field(
        None,
        description="Certificates of the authorities of kube-scheduler's client certificate, in PEM; with it the verbs are"
        " served over TLS alone, to callers with a certificate of these",
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
    def _whole(self) -> Self:
        if (self.cert_file is None) is not (self.private_key_file is None):
            raise ValueError("cert_file and private_key_file belong together; one of them is not set")
        if self.client_ca_file is not None and self.cert_file is None:
            raise ValueError("client_ca_file is set, but cert_file is not: there is no TLS without a certificate")
        return self

    @property
    def serves_verbs(self) -> bool:
        """Whether the verbs are served over TLS, to callers with a certificate."""
        return self.client_ca_file is not None


def is_loopback(address: str) -> bool:
    """Return whether an address is one of this machine's own, IPv4 in the form of IPv6 included."""
    try:
        found = ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return (mapped or found).is_loopback


def problem_of(host: str, *, plain_http: bool, probes: ProbeSettings, tls: TlsSettings) -> str:
    """Return why the listeners cannot be used this way; empty if they can.  `host` is where the verbs are served."""
    if tls.serves_verbs and probes.port is None:
        return "setting probes.port: expected a port, because kubelet's probes have no certificate for the port of the verbs"
    if tls.serves_verbs and plain_http:
        return "setting server.plain_http: expected false, because tls.client_ca_file is set: the verbs are served over TLS"
    if not (tls.serves_verbs or plain_http or host == _LOCALHOST or is_loopback(host)):
        return (
            f"setting server.host: expected a loopback address, got {host!r}: a caller that reaches the verbs can bind pods; set "
            "tls.client_ca_file, tls.cert_file and tls.private_key_file to serve them over TLS to kube-scheduler alone, or "
            "server.plain_http to serve them to all"
        )
    if probes.metrics is MetricsAccess.AUTHORIZED and (tls.cert_file is None or probes.port is None):
        return (
            "setting probes.metrics: authorized needs probes.port, tls.cert_file and tls.private_key_file: a token is not "
            "sent over plain HTTP"
        )
    return ""
