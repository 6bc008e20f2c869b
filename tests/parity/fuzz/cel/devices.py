"""Random devices, in the form in which scenarios hold them."""

from random import Random
from typing import Any, Final

_DRIVERS: Final = ("gpu.example.com",) * 8 + ("other.example.com", "a")
_TEXTS: Final = (
    *("a100", "h100", "a", "", "A-b c", "1.2.3", "gpu.example.com", "x" * 40),
    *("é😀", "10Gi", "3", "true", "10.0.0.1", "v1.2", "b" * 64),
)
_VERSIONS: Final = (
    *("1.2.3", "0.1.0", "2.0.0-rc.1", "10.20.30+b.1", "1.2.3+b", "1.2.3-rc"),
    *("550.54.15", "0.0.0", "1.2.3-1.a.2", "18446744073709551615.0.0"),
)
_BROKEN: Final = ("1.2", "v1.2.3", "01.2.3", "")
_NUMBERS: Final = (0, 1, 3, -1, 2**63 - 1, 100, -(2**63))
_AMOUNTS: Final = ("40Gi", "0", "1500m", "1k", "-3", "8Ei", "0.5", "1", "3Ti", "100M", "1n", "1e3", "10")
_USUAL: Final = {
    "model": "string",
    "index": "int",
    "healthy": "bool",
    "version": "version",
    "links": "strings",
    "numbers": "ints",
    "versions": "versions",
    "flags": "bools",
    "a-b": "string",
    "other.example.com/serial": "string",
    "gpu.example.com/flag": "bool",
    "resource.kubernetes.io/numaNode": "int",
}
_LONG: Final = 60


def device(random: Random) -> dict[str, Any]:
    """A device that has most of the usual attributes, now and then of an unusual type, or with something wrong."""
    attributes = {}
    for name, kind in _USUAL.items():
        if random.random() < 0.85:
            chosen = kind if random.random() < 0.93 else random.choice(tuple(_USUAL.values()))
            attributes[name] = {chosen: _value(random, chosen)}
    if random.random() < 0.01:
        attributes["model"] = random.choice(({}, {"version": random.choice(_BROKEN)}, {"versions": ["1.2"]}))
    names = ("memory", "cores", "other.example.com/bandwidth")
    capacity = {name: {"value": random.choice(_AMOUNTS)} for name in names if random.random() < 0.85}
    made: dict[str, Any] = {"Driver": random.choice(_DRIVERS), "Attributes": attributes, "Capacity": capacity}
    if random.random() < 0.5:
        made["AllowMultipleAllocations"] = random.random() < 0.5
    return made


def _value(random: Random, kind: str) -> Any:
    if kind.endswith("s") and kind != "version":
        length = _LONG if random.random() < 0.01 else random.randrange(4)
        return [_value(random, kind[:-1]) for _ in range(length)]
    if kind == "string":
        return random.choice(_TEXTS)
    if kind == "version":
        return random.choice(_VERSIONS)
    return random.choice(_NUMBERS) if kind == "int" else random.random() < 0.5
