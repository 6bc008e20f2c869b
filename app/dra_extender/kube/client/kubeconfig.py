"""What kubectl reads of kubeconfig files and the Kubernetes client for Python does not.

That is whose `current-context` counts where several files are merged (the first that sets it; the library takes the last), the
context's namespace, in whose name the user asks (`as`, `as-groups`, `as-uid`, `as-user-extra`), and why a login program failed.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from dra_extender.kube.client.library import ConfigNode, KubeConfigMerger
from dra_extender.kube.client.settings import KubeSettings

_LIBRARY: Final = "kubernetes.aio.config.kube_config"
_SOCKS: Final = "socks"
_TRUST: Final = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
_CHOSEN: Final = "chosen by dra-extender"
"""The name, in memory, of what takes the place of a kubeconfig's own."""


class KubeconfigError(ValueError):
    """A kubeconfig that says nothing usable; the message names the file and the field."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """In whose name requests are sent; without a user, in the account's own."""

    user: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, str], ...] = ()

    def headers(self) -> Sequence[tuple[str, str]]:
        """Return the headers of a request; a name may come several times."""
        if not self.user:
            return ()
        return (
            ("Impersonate-User", self.user),
            *(("Impersonate-Group", group) for group in self.groups),
            *((("Impersonate-Uid", self.uid),) if self.uid else ()),
            *((f"Impersonate-Extra-{name}", value) for name, value in self.extra),
        )


ACCOUNT_ITSELF: Final = Impersonation()


@dataclass(frozen=True, slots=True)
class KubeconfigChoice:
    """The context that is used, its cluster and user, and what they bring beside server and login.

    `context` is empty if only a cluster was named.  `logs_in`: a program gets the credentials.
    """

    context: str
    cluster: str
    user: str
    namespace: str
    impersonation: Impersonation
    logs_in: bool


def choose(paths: str, settings: KubeSettings) -> KubeconfigChoice:
    """Return the choice that the files make, in the form of $KUBECONFIG; files that do not exist are passed over, as by kubectl.

    Raises:
        KubeconfigError: a file is no kubeconfig, or there is no such context, cluster or user.
        OSError: a file cannot be read.
        yaml.YAMLError: a file is no YAML.
    """
    files = [_read(path) for part in paths.split(os.pathsep) if part and (path := Path(part).expanduser()).is_file()]
    name = settings.context or next((current for file in files if (current := file.get("current-context"))), "")
    if not (name or settings.cluster or settings.server):
        raise KubeconfigError("no context was named, and current-context is not set")
    chosen = _existing(files, "context", str(name)) if name else {}
    cluster_name = settings.cluster or str(chosen.get("cluster", ""))
    user_name = settings.user or str(chosen.get("user", ""))
    cluster = _existing(files, "cluster", settings.cluster) if settings.cluster else {}
    user = _existing(files, "user", settings.user) if settings.user else {}
    user = user or _named(files, "users", "user", user_name) or {}
    proxy = str((cluster or _named(files, "clusters", "cluster", cluster_name) or {}).get("proxy-url") or "")
    if proxy.startswith(_SOCKS):
        raise KubeconfigError(f"proxy-url {proxy}: expected http:// or https://, for no SOCKS proxy can be used here")
    return KubeconfigChoice(
        context=str(name),
        cluster=cluster_name,
        user=user_name,
        namespace=str(chosen.get("namespace") or "default"),
        impersonation=_impersonation(user),
        logs_in="exec" in user and not settings.token,
    )


def merged(paths: str, choice: KubeconfigChoice, settings: KubeSettings) -> tuple[ConfigNode, str]:
    """Return the kubeconfig that the files are together, for the library, and the context in it that has the choice.

    Fields in whose place an option is used are left out: their files need not exist.
    """
    config = KubeConfigMerger(paths).config  # type: ignore[no-untyped-call]  # the library has no annotations here
    parts: dict[str, list[Any]] = config.value
    cluster, user = choice.cluster, choice.user
    if settings.server:
        entry = next((entry for entry in parts["clusters"] if entry["name"] == cluster), None)
        if entry is None:
            cluster = _CHOSEN
            parts["clusters"].append({"name": cluster, "cluster": {"server": settings.server}})
        else:
            entry["cluster"].value["server"] = settings.server
            # The name in the certificate is that of the other address, as for kubectl.
            entry["cluster"].value.pop("tls-server-name", None)
    if settings.tls.authority or settings.tls.insecure:
        _leave_out(parts["clusters"], "cluster", cluster, _TRUST)
    if settings.tls.certificate:
        _leave_out(parts["users"], "user", user, ("client-certificate", "client-certificate-data"))
    if settings.tls.key:
        _leave_out(parts["users"], "user", user, ("client-key", "client-key-data"))
    if settings.token:
        user = _CHOSEN
        parts["users"].append({"name": user, "user": {"token": settings.token}})
    parts["contexts"] = [{"name": _CHOSEN, "context": {"cluster": cluster, "user": user}}]
    return config, _CHOSEN


def _leave_out(entries: Sequence[Any], kind: str, name: str, fields: Sequence[str]) -> None:
    for entry in entries:
        if entry["name"] == name:
            for field in fields:
                entry[kind].value.pop(field, None)


@contextmanager
def login_errors() -> Iterator[list[str]]:
    """Collect what the library only logs inside: why a login program gave no credentials."""
    messages: list[str] = []

    def collect(record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            messages.append(record.getMessage())
        return False

    logger = logging.getLogger(_LIBRARY)
    logger.addFilter(collect)
    try:
        yield messages
    finally:
        logger.removeFilter(collect)


def _read(path: Path) -> Mapping[str, Any]:
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(document, Mapping):
        raise KubeconfigError(f"{path}: expected a Config with clusters, contexts and users")
    return document


def _entries(file: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    entries = file.get(kind) or ()
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise KubeconfigError(f"{kind}: expected a list")
    yield from (entry for entry in entries if isinstance(entry, Mapping))


def _existing(files: Sequence[Mapping[str, Any]], field: str, name: str) -> Mapping[str, Any]:
    """Return the context, cluster or user of this name.

    Raises:
        KubeconfigError: there is none.
    """
    kind = f"{field}s"
    entry = _named(files, kind, field, name)
    if entry is None:
        names = ", ".join(sorted({str(entry.get("name")) for file in files for entry in _entries(file, kind)}))
        raise KubeconfigError(f"there is no {field} with name {name}; there are: {names or 'none'}")
    return entry


def _named(files: Sequence[Mapping[str, Any]], kind: str, field: str, name: str) -> Mapping[str, Any] | None:
    """Return the first entry of this name, over all files."""
    for file in files:
        for entry in _entries(file, kind):
            if entry.get("name") == name:
                value = entry.get(field) or {}
                if not isinstance(value, Mapping):
                    raise KubeconfigError(f"{kind}, {name}: expected an object in the field {field}")
                return value
    return None


def _impersonation(user: Mapping[str, Any]) -> Impersonation:
    extra = user.get("as-user-extra") or {}
    return Impersonation(
        user=str(user.get("as") or ""),
        groups=tuple(map(str, user.get("as-groups") or ())),
        uid=str(user.get("as-uid") or ""),
        extra=tuple((str(name), str(value)) for name, values in extra.items() for value in values),
    )
