"""Random devices, in the form in which scenarios hold them."""

from random import Random
from typing import Any, Final

_TEXTS: Final = ("a100", "h100", "a", "", "A-b c", "1.2.3", "gpu.example.com", "x" * 40)
_VERSIONS: Final = ("1.2.3", "0.1.0", "2.0.0-rc.1", "10.20.30+b.1")
_AMOUNTS: Final = ("40Gi", "0", "1500m", "1k", "-3", "8Ei", "0.5")
_USUAL: Final = {
    "model": "string",
    "index": "int",
    "healthy": "bool",
    "version": "version",
    "links": "strings",
    "numbers": "ints",
    "versions": "versions",
    "other.example.com/serial": "string",
    "gpu.example.com/flag": "bool",
}


def device(random: Random) -> dict[str, Any]:
    """A device that has most of the usual attributes, now and then of an unusual type."""
    attributes = {}
    for name, kind in _USUAL.items():
        if random.random() < 0.85:
            chosen = kind if random.random() < 0.93 else random.choice(tuple(_USUAL.values()))
            attributes[name] = {chosen: _value(random, chosen)}
    capacity = {name: {"value": random.choice(_AMOUNTS)} for name in ("memory", "cores") if random.random() < 0.85}
    made: dict[str, Any] = {"Driver": "gpu.example.com", "Attributes": attributes, "Capacity": capacity}
    if random.random() < 0.5:
        made["AllowMultipleAllocations"] = random.random() < 0.5
    return made


def _value(random: Random, kind: str) -> Any:
    if kind.endswith("s") and kind != "version":
        return [_value(random, kind[:-1]) for _ in range(random.randrange(4))]
    if kind == "string":
        return random.choice(_TEXTS)
    if kind == "version":
        return random.choice(_VERSIONS)
    return random.choice((0, 1, 3, -1, 2**63 - 1, 100)) if kind == "int" else random.random() < 0.5
