"""What expressions may use, by Kubernetes release: the functions of the stored-expression environment and the fields of `device`.

The API server has already accepted the selectors that a scheduler evaluates, so feature gates play no role here. The libraries of
1.34 to 1.36 differ from those of 1.37 in two points, `includes` and the type of attributes: 1.34 and 1.35 have neither `includes`
nor list attributes, and `includes` of 1.36 differs.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.cel.library import core, kubernetes, lists, strings, time
from dra_extender.cel.types.declarations import Function, Library, Overload, merge_libraries
from dra_extender.cel.types.types import ANY, BOOL, DYN, QUANTITY, STRING, Type, map_of


class Release(StrEnum):
    """A Kubernetes release whose expressions can be evaluated."""

    V1_34 = "1.34"
    V1_35 = "1.35"
    V1_36 = "1.36"
    V1_37 = "1.37"


LATEST: Final = Release.V1_37


class Environment(msgspec.Struct, frozen=True):
    """The declarations that an expression is checked against; `attribute` is the type of attribute values."""

    functions: Library
    device: Mapping[str, Type]
    attribute: Type


def _environment(attribute: Type, *own: tuple[Function, ...]) -> Environment:
    functions = merge_libraries(
        core.FUNCTIONS, strings.FUNCTIONS, lists.FUNCTIONS, *own, time.FUNCTIONS, kubernetes.FUNCTIONS
    )
    fields = {
        "driver": STRING,
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    return Environment(functions, fields, attribute)


_SCALARS_ONLY: Final = _environment(ANY)
ENVIRONMENTS: Final[Mapping[Release, Environment]] = {
    Release.V1_34: _SCALARS_ONLY,
    Release.V1_35: _SCALARS_ONLY,
    Release.V1_36: _environment(DYN, lists.CAPPED_INCLUDES),
    Release.V1_37: _environment(DYN, lists.INCLUDES),
}
DEVICE_FIELDS: Final[Mapping[str, Type]] = ENVIRONMENTS[LATEST].device
FUNCTIONS: Final[Library] = ENVIRONMENTS[LATEST].functions
UNDECLARED: Final[Mapping[tuple[str, int], Overload]] = {**strings.UNDECLARED, **time.UNDECLARED}
"""Overloads by function and number of arguments that upstream implements without declaring them: run-time types choose them."""
