import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Access:
    """How to reach an API server as somebody: https URL, certificate to trust (PEM), bearer token."""

    server: str
    authority: str
    token: str


def write_kubeconfig(path: Path, access: Access) -> Path:
    """Writes a kubeconfig with one context (as JSON, which is YAML)."""
    cluster = {
        "server": access.server,
        "certificate-authority-data": base64.b64encode(access.authority.encode()).decode(),
    }
    config: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "user", "user": {"token": access.token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "user"}}],
        "current-context": "test",
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config, indent=2))
    return path


def read_kubeconfig(path: Path) -> Access:
    """Reads back what write_kubeconfig wrote."""
    config = json.loads(path.read_text())
    cluster = config["clusters"][0]["cluster"]
    return Access(
        server=cluster["server"],
        authority=base64.b64decode(cluster["certificate-authority-data"]).decode(),
        token=config["users"][0]["user"]["token"],
    )
