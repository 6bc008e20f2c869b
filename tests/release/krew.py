"""The manifest by which Krew installs the plugin: `python -m tests.release.krew FOLDER VERSION REPOSITORY-URL` prints it.

The folder has the archives of all platforms (`tests.release.archive`); the manifest names them as files of the release.
"""

import hashlib
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.release.archive import NAME, PLATFORMS, file_name, program

API: Final = "krew.googlecontainertools.github.com/v1alpha2"
SHORT: Final = "Why pods wait for devices (DRA), and who has them"
DESCRIPTION: Final = """\
Says why a pod with ResourceClaims waits: the nodes by reason, the device that
came closest, who is in its way, and which changes would let it fit. Shows
devices and who has them, audits, takes snapshots, answers what-if questions,
and draws a page. Works on any cluster that serves resource.k8s.io/v1
(Kubernetes 1.34 and later), with any scheduler, and needs rights to read only.
"""


def manifest(folder: Path, version: str, repository: str) -> dict[str, Any]:
    """The manifest for the archives in a folder; `version` is the tag, e.g. v1.2.3, `repository` the URL of the project.

    Raises:
        FileNotFoundError: the archive of a platform is missing.
    """
    return {
        "apiVersion": API,
        "kind": "Plugin",
        "metadata": {"name": NAME.removeprefix("kubectl-")},
        "spec": {
            "version": version,
            "homepage": repository,
            "shortDescription": SHORT,
            "description": DESCRIPTION,
            "platforms": [_platform(each, folder, version, repository) for each in PLATFORMS],
        },
    }


def text(folder: Path, version: str, repository: str) -> str:
    """The manifest as YAML."""
    made: str = yaml.safe_dump(manifest(folder, version, repository), sort_keys=False)
    return made


def _platform(platform: str, folder: Path, version: str, repository: str) -> dict[str, Any]:
    system, _, machine = platform.partition("-")
    file = folder / file_name(platform)
    return {
        "selector": {"matchLabels": {"os": system, "arch": machine}},
        "uri": f"{repository}/releases/download/{version}/{file.name}",
        "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        "bin": program(platform),
    }


if __name__ == "__main__":
    sys.stdout.write(text(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
