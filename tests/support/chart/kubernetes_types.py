"""Types of the Kubernetes API in several releases, as JSON Schema that is closed to the bottom.

`python -m tests.support.chart.kubernetes_types` collects them anew from the OpenAPI document in the Go module of each release: the
kinds that the chart renders and all that these are made of, without descriptions; and the kinds of other projects that it can
render, from the definitions of custom resources in the Go modules of those.
"""

import gzip
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from tests.controlplane.build import CONTROL_PLANE, RELEASES, find_go, pinned

LOCATION: Final = "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json"
"""Below the folder, in the words of kubeconform's option -schema-location."""
FOLDER: Final = Path(__file__).parents[2] / "chart" / "openapi"
KINDS: Final = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "ConfigMap",
        "CronJob",
        "Deployment",
        "DeviceClass",
        "Job",
        "Lease",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "Namespace",
        "NetworkPolicy",
        "Pod",
        "PodDisruptionBudget",
        "Role",
        "RoleBinding",
        "Secret",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)
CUSTOM: Final = "custom resources"
"""In place of a release: the kinds of other projects."""
_CUSTOM_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "github.com/prometheus-operator/prometheus-operator@v0.85.0": (
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
        "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
    ),
    "github.com/cilium/cilium@v1.20.2": ("pkg/k8s/apis/cilium.io/client/crds/v2/ciliumnetworkpolicies.yaml",),
    "github.com/cert-manager/cert-manager@v1.21.2": (
        "deploy/crds/cert-manager.io_certificates.yaml",
        "deploy/crds/cert-manager.io_issuers.yaml",
    ),
}
_TEXTS: Final = {"type": "object", "additionalProperties": {"type": "string"}}
_METADATA: Final[Mapping[str, Any]] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "name": {"type": "string"},
        "namespace": {"type": "string"},
        "labels": _TEXTS,
        "annotations": _TEXTS,
    },
}
"""What definitions of custom resources leave to the API server."""
_PREFERRED: Final = ("io.k8s.api.core.v1", "io.k8s.api.apps.v1", "io.k8s.api.networking.v1")
_DROPPED: Final = ("description", "format", "default")
_PARTS: Final = ("anyOf", "oneOf", "allOf", "not")
_EITHER: Final[Mapping[str, Any]] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": {
        "type": ["string", "number"],
        "pattern": r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    },
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": {"type": ["integer", "string"]},
}
"""What the OpenAPI document calls a string, and what people write as a number too."""

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class KubernetesTypes:
    """Definitions by their full name, e.g. `io.k8s.api.core.v1.Affinity`, and the name of each kind's (`apps/v1 Deployment`)."""

    release: str
    kinds: Mapping[str, str]
    definitions: Mapping[str, Schema]

    def full_name(self, short: str) -> str:
        """The definition of this name in one of the usual groups; KeyError if there is none."""
        return next(name for group in _PREFERRED if (name := f"{group}.{short}") in self.definitions)

    def needed_by(self, names: Iterable[str]) -> dict[str, Schema]:
        """These definitions and all that they refer to."""
        found: dict[str, Schema] = {}
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in found:
                found[name] = self.definitions[name]
                waiting += references(found[name])
        return dict(sorted(found.items()))


def references(schema: Any) -> Iterator[str]:
    """Names of the definitions to which the schema refers."""
    if isinstance(schema, dict):
        if isinstance(target := schema.get("$ref"), str):
            yield target.rpartition("/")[2]
        for each in schema.values():
            yield from references(each)
    if isinstance(schema, list):
        for each in schema:
            yield from references(each)


def newest_release() -> str:
    """The newest release from which control planes of the tests are built."""
    return all_releases()[-1]


def all_releases() -> tuple[str, ...]:
    """The releases from which control planes of the tests are built, the oldest first."""
    modules = (*(target.module for target in RELEASES.values()), CONTROL_PLANE.module)
    return tuple(pinned((module / "go.mod").read_text(), "k8s.io/kubernetes") for module in modules)


@cache
def read_types(release: str) -> KubernetesTypes:
    """What was collected of a release."""
    found = json.loads(gzip.decompress(_file(release).read_bytes()))
    return KubernetesTypes(found["release"], found["kinds"], found["definitions"])


def minor(release: str) -> str:
    """E.g. `1.37`."""
    return ".".join(release.removeprefix("v").split(".")[:2])


def collect(release: str, document: Mapping[str, Any]) -> KubernetesTypes:
    """The types of a release from its OpenAPI document (version 2)."""
    given = document["definitions"]
    kinds = {
        f"{each['group']}/{each['version']} {each['kind']}".removeprefix("/"): name
        for name, schema in given.items()
        for each in schema.get("x-kubernetes-group-version-kind", ())
        if each["kind"] in KINDS
    }
    every = KubernetesTypes(release, kinds, {name: _EITHER.get(name) or closed(each) for name, each in given.items()})
    return KubernetesTypes(release, dict(sorted(kinds.items())), every.needed_by(kinds.values()))


def collect_custom(documents: Iterable[Mapping[str, Any]]) -> KubernetesTypes:
    """The types that definitions of custom resources declare."""
    kinds, definitions = {}, {}
    for document in documents:
        spec = document["spec"]
        for version in spec["versions"]:
            name = f"{spec['group']}.{version['name']}.{spec['names']['kind']}"
            kinds[f"{spec['group']}/{version['name']} {spec['names']['kind']}"] = name
            definitions[name] = closed(version["schema"]["openAPIV3Schema"])
            definitions[name]["properties"]["metadata"] = _METADATA
    return KubernetesTypes(CUSTOM, kinds, definitions)


def closed(schema: Any, *, whole: bool = True) -> Any:
    """The schema without what says nothing to a validator; an object that names its properties has no others.

    `whole`: false below anyOf and its like, which say more of an object whose properties stand beside them.
    """
    if isinstance(schema, list):
        return [closed(each, whole=whole) for each in schema]
    if not isinstance(schema, dict):
        return schema
    kept: Schema = {
        name: closed(each, whole=whole and name not in _PARTS)
        for name, each in schema.items()
        if not _says_nothing(name, each)
    }
    if isinstance(properties := schema.get("properties"), dict):
        kept["properties"] = {name: closed(each, whole=whole) for name, each in properties.items()}
        if whole:
            kept["additionalProperties"] = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
    return kept


def _says_nothing(name: str, value: object) -> bool:
    """Also a property may be called `description`: its value is a schema, not a text."""
    return name.startswith("x-kubernetes-") or (name in _DROPPED and not (isinstance(value, dict) and value))


def _file(release: str) -> Path:
    return FOLDER / ("custom.json.gz" if release == CUSTOM else f"kubernetes-{minor(release)}.json.gz")


def _module(module: str) -> Path:
    """The folder of a Go module, fetched if it is not there."""
    command = [str(find_go()), "mod", "download", "-json", module]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=CONTROL_PLANE.module)
    return Path(json.loads(done.stdout)["Dir"])


def write_schemas(release: str, folder: Path) -> None:
    """One file for each kind of a release, and for each kind of other projects."""
    below = folder / release
    below.mkdir(parents=True)
    for types in (read_types(release), read_types(CUSTOM)):
        for kind, name in types.kinds.items():
            (below / _schema_file(kind)).write_text(json.dumps(_document(types, name)))


def _document(types: KubernetesTypes, name: str) -> dict[str, object]:
    definitions = types.needed_by([name])
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": f"#/definitions/{name}",
        "definitions": definitions,
    }


def _schema_file(kind: str) -> str:
    """E.g. deployment-apps-v1.json for `apps/v1 Deployment`: of the group only what stands before its first dot."""
    group_version, _, name = kind.partition(" ")
    group, _, version = group_version.rpartition("/")
    parts = [name.lower(), *([group.partition(".")[0]] if group else []), version]
    return "-".join(parts) + ".json"


def main() -> None:
    """Write the files anew."""
    FOLDER.mkdir(exist_ok=True)
    for release in all_releases():
        document = _module(f"k8s.io/kubernetes@{release}") / "api" / "openapi-spec" / "swagger.json"
        _write(collect(release, json.loads(document.read_text())))
    files = [_module(module) / name for module, names in _CUSTOM_KINDS.items() for name in names]
    _write(collect_custom(yaml.safe_load(file.read_text()) for file in files))


def _write(types: KubernetesTypes) -> None:
    text = json.dumps({"release": types.release, "kinds": types.kinds, "definitions": types.definitions})
    _file(types.release).write_bytes(gzip.compress(text.encode(), mtime=0))
    print(f"{types.release}: {len(types.kinds)} kinds, {len(types.definitions)} types", file=sys.stderr)


if __name__ == "__main__":
    main()
