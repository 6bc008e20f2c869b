"""The KubeSchedulerConfiguration with which kube-scheduler calls this service: rendered, or read from a file.

docs/reference/kube-scheduler.md has the reason of each line.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from dra_extender.config.scheduling_settings import FILTER_HTTP_SECONDS, bind_http_seconds
from dra_extender.config.settings import InvalidSettingsError
from dra_extender.manifests.documents import (
    MOST_BYTES,
    FieldPath,
    YamlDocument,
    YamlError,
    load_documents,
    node_at,
    read_documents,
)
from dra_extender.manifests.files import STDIN, opened, title
from dra_extender.model.api_json import number_of

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
KIND: Final = "KubeSchedulerConfiguration"
PLUGIN: Final = "DynamicResources"
VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
_CONFIG_MAP: Final = "ConfigMap"
_STEP: Final = re.compile(r"\[(\d+)\]|[^.\[\]]+")


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
    """Return the document, in the order in which people read it."""
    choosing = {name: VERBS[name] for name in ("filterVerb", "prioritizeVerb", "preemptVerb")}
    plugins = {"multiPoint": {"disabled": [{"name": PLUGIN}]}}
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


class FoundConfiguration(msgspec.Struct, frozen=True):
    """A KubeSchedulerConfiguration with its place in the file.

    `above` is the number of lines before its own first line; `in_one_line`: all of it is written in the line after these.
    """

    document: YamlDocument
    above: int = 0
    in_one_line: bool = False

    @property
    def value(self) -> Any:
        return self.document.value

    def line_of(self, field: str) -> int:
        """Return the line of a field as messages name it, e.g. `extenders[0].weight`, or of its nearest part that exists."""
        path: FieldPath = tuple(int(step[1]) if step[1] is not None else step[0] for step in _STEP.finditer(field))
        return self.above + (1 if self.in_one_line else self.document.position_of(path).line)


def read_configuration(file: Path) -> FoundConfiguration:
    """Return the one KubeSchedulerConfiguration in a YAML or JSON file, by itself or in a ConfigMap.

    If the file has one document and that is no ConfigMap, return the document, whatever kind it states.

    Raises:
        InvalidSettingsError: the file cannot be read, or holds none, or several.
    """
    name = f"kube-scheduler's configuration {file}" if file != STDIN else title(file)
    try:
        with opened(file) as source:
            content = source.read(MOST_BYTES + 1)
        documents = load_documents(content)
        configurations = [configuration for document in documents for configuration in _configurations(document)]
    except OSError as problem:
        raise InvalidSettingsError(f"{name}: cannot be read: {problem.strerror}") from problem
    except YamlError as problem:
        raise InvalidSettingsError(f"{name}: {problem}") from problem
    if len(configurations) == 1:
        return configurations[0]
    if len(documents) == 1 and _kind(documents[0].value) != _CONFIG_MAP:
        return FoundConfiguration(documents[0])
    count = number_of(len(documents), "document")
    raise InvalidSettingsError(
        f"{name}: expected one {KIND}, by itself or in a ConfigMap, found {len(configurations)} in {count}"
    )


def _configurations(document: YamlDocument) -> Iterator[FoundConfiguration]:
    if _kind(document.value) == KIND:
        yield FoundConfiguration(document)
    if _kind(document.value) != _CONFIG_MAP:
        return
    data = document.value.get("data")
    for key, text in data.items() if isinstance(data, Mapping) else ():
        if isinstance(text, str) and KIND in text:
            node = node_at(document.root, ("data", key)) or document.root
            # A literal block begins in the line after its `|`, and its lines are those of the text.
            literal = getattr(node, "style", None) == "|"
            above = node.start_mark.line + literal
            try:
                inner = read_documents(text)
            except YamlError as problem:
                raise YamlError(f"data.{key}, which begins in line {above + 1}: {problem}") from problem
            yield from (
                FoundConfiguration(inner_document, above, not literal)
                for inner_document in inner
                if _kind(inner_document.value) == KIND
            )


def _kind(value: object) -> object:
    return value.get("kind") if isinstance(value, Mapping) else None
