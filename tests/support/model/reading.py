"""Model values from decoded JSON, and back."""

from typing import Any

import msgspec
from dra_extender.model.pod import Pod, read_pod


def pod_from(raw: Any) -> Pod:
    """The pod in decoded API JSON."""
    return read_pod(msgspec.json.encode(raw))


def plain(value: Any) -> Any:
    """The JSON-compatible form of a model value (dicts, lists, strings, numbers)."""
    return msgspec.to_builtins(value)
