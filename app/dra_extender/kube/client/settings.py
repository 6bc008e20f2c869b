"""How to reach an API server: kubeconfig, TLS, time limits, watches."""

from dataclasses import dataclass, field
from pathlib import Path

from dra_extender.config.scheduling_settings import WRITE_SECONDS


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How long an answer may take, in seconds, connecting included."""

    connect: float = 5.0
    read: float = 10.0
    write: float = WRITE_SECONDS
    page: float = 60.0


@dataclass(frozen=True, slots=True)
class WatchSettings:
    """How lists and watches are made.

    `page`: objects in a page of a list.
    `stall`: seconds without a byte after which a new watch begins (bookmarks usually come every minute).
    `shortest`, `longest`: after a random time between these seconds the server is asked to end a watch.
    `silence`: seconds without any contact after which health reports it.
    """

    page: int = 250
    stall: float = 90.0
    shortest: float = 240.0
    longest: float = 480.0
    silence: float = 180.0


@dataclass(frozen=True, slots=True)
class TlsOptions:
    """Options of kubectl about TLS; each is used in the place of what the kubeconfig says, if it is given.

    `authority`: the file of the certificate authority that signed the server's certificate.
    `insecure`: the server's certificate is not checked; then no authority counts, that of the kubeconfig included.
    `server_name`: the name that the server's certificate must have.
    `certificate`, `key`: the files of the client certificate and its key; one of them may be that of the kubeconfig.
    """

    authority: Path | None = None
    insecure: bool = False
    server_name: str = ""
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True, slots=True)
class KubeSettings:
    """How to reach the API server and how to appear there.

    `kubeconfig` None means: the variable KUBECONFIG, else the service account of this pod, else ~/.kube/config.
    `cluster` and `user` are used in the place of those of the context, `server` in the place of the cluster's address, and `token`
    in the place of every other login; empty for what the kubeconfig says (as the options of kubectl).
    `identity` names this program in field managers, user agent and Events; `instance` names this replica in Events.
    `impersonate` is the user in whose name requests are sent, with `impersonate_groups` and `impersonate_uid`, empty for what the
    kubeconfig says (as `kubectl --as`, `--as-group` and `--as-uid`).
    `startup_timeout`: seconds for which `start` retries while the API server does not answer or refuses access.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = field(default="", repr=False)
    tls: TlsOptions = field(default_factory=TlsOptions)
    connections: int = 50
    identity: str = "dra-extender"
    instance: str = "dra-extender"
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    impersonate_uid: str = ""
    startup_timeout: float = 60.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    watch: WatchSettings = field(default_factory=WatchSettings)
