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
class KubeSettings:
    """How to reach the API server and how to appear there.

    `kubeconfig` None means: the variable KUBECONFIG, else the service account of this pod, else ~/.kube/config.
    `cluster` and `user` are used in the place of those of the context, `server` in the place of the cluster's address, and `token`
    in the place of every other login; empty for what the kubeconfig says (as the options of kubectl).
    `identity` names this program in field managers, user agent and Events; `instance` names this replica in Events.
    `impersonate` is the user in whose name requests are sent, with `impersonate_groups`, empty for what the kubeconfig says (as
    `kubectl --as` and `--as-group`).
    `startup_timeout`: seconds for which `start` retries while the API server does not answer or refuses access.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    cluster: str = ""
    user: str = ""
    server: str = ""
    token: str = field(default="", repr=False)
    connections: int = 50
    identity: str = "dra-extender"
    instance: str = "dra-extender"
    impersonate: str = ""
    impersonate_groups: tuple[str, ...] = ()
    startup_timeout: float = 60.0
    timeouts: Timeouts = field(default_factory=Timeouts)
    watch: WatchSettings = field(default_factory=WatchSettings)
