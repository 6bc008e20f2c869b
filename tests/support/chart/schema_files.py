"""Types of the Kubernetes API as files that kubeconform reads."""

import json
from pathlib import Path
from typing import Final

from tests.support.chart.kubernetes_types import CUSTOM, KubernetesTypes, read_types

LOCATION: Final = "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json"
"""Below the folder, in the words of kubeconform's option -schema-location."""


def write_schemas(release: str, folder: Path) -> None:
    """One file for each kind of a release, and for each kind of other projects."""
    below = folder / release
    below.mkdir(parents=True)
    for types in (read_types(release), read_types(CUSTOM)):
        for kind, name in types.kinds.items():
            (below / _file(kind)).write_text(json.dumps(_document(types, name)))


def _document(types: KubernetesTypes, name: str) -> dict[str, object]:
    definitions = types.needed_by([name])
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": f"#/definitions/{name}",
        "definitions": definitions,
    }


def _file(kind: str) -> str:
    """E.g. deployment-apps-v1.json for `apps/v1 Deployment`: of the group only what stands before its first dot."""
    group_version, _, name = kind.partition(" ")
    group, _, version = group_version.rpartition("/")
    parts = [name.lower(), *([group.partition(".")[0]] if group else []), version]
    return "-".join(parts) + ".json"
