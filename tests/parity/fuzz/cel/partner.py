"""cel-expr-python (cel-cpp) as a second opinion on the language itself; it knows no library of Kubernetes.

It differs from Kubernetes in three to five of a hundred answers.  The ways are listed in partner_classes.py.
"""

import re
from typing import Any, Final

from cel_expr_python import cel

from tests.parity.selectors import Json

_LIBRARIES: Final = ("strings", "sets", "lists", "bindings", "optional", "two-var-comprehensions")
_PLAIN: Final = frozenset({"string", "int", "bool", "strings", "ints", "bools"})
_VARIABLES: Final = {
    "device.driver": cel.Type.STRING,
    "device.allowMultipleAllocations": cel.Type.BOOL,
    "device.attributes": cel.Type.Map(cel.Type.STRING, cel.Type.Map(cel.Type.STRING, cel.Type.DYN)),
}
_UNKNOWN: Final = re.compile(
    r"undeclared reference|reference resolve step"
    r"|overload for '(i|lastI)ndexOf' applied to '\((list|dyn)|overloads found : \(list\)\.(i|lastI)ndexOf"
)

OUTSIDE: Final = "outside"
ERROR: Final = "error"


class Partner:
    """Answers scenarios of kind cel."""

    def __init__(self) -> None:
        libraries = ", ".join(f"{{name: {each}}}" for each in _LIBRARIES)
        config = cel.NewEnvConfigFromYaml(f"extensions: [{libraries}]")
        self._environment = cel.NewEnv(config=config, variables=_VARIABLES)

    def ask(self, scenario: Json) -> tuple[str, str]:
        """The verdict, match, no-match, error or outside (of what it knows), and its words about an error."""
        device = scenario["device"]
        data = {
            "device.driver": device["Driver"],
            "device.allowMultipleAllocations": bool(device.get("AllowMultipleAllocations")),
            "device.attributes": _attributes(device),
        }
        try:
            program = self._environment.compile(scenario["expression"])
            value = program.eval(data=data)
            return _told(value)
        except (RuntimeError, ValueError, TypeError, MemoryError) as refusal:
            return _refused(str(refusal))


def _told(value: cel.Value) -> tuple[str, str]:
    if value.type() == cel.Type.BOOL:
        return ("match" if value.value() else "no-match"), ""
    return _refused(str(value.value())) if value.type() == cel.Type.ERROR else (ERROR, "the result is no bool")


def _refused(words: str) -> tuple[str, str]:
    return OUTSIDE if _UNKNOWN.search(words) else ERROR, words


def plain(scenario: Json) -> Json:
    """The scenario with a device that has nothing but what every CEL knows."""
    device = scenario["device"]
    attributes = {
        name: value for name, value in (device.get("Attributes") or {}).items() if not _PLAIN.isdisjoint(value)
    }
    return {**scenario, "device": {**device, "Attributes": attributes, "Capacity": {}}}


def _attributes(device: Json) -> dict[str, dict[str, Any]]:
    domains: dict[str, dict[str, Any]] = {}
    for name, value in device["Attributes"].items():
        domain, slash, identifier = name.partition("/")
        domains.setdefault(domain if slash else device["Driver"], {})[identifier if slash else name] = next(
            iter(value.values())
        )
    return domains
