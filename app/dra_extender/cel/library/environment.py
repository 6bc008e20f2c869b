"""What expressions may use, by Kubernetes release: the functions of the stored-expression environment and the fields of `device`.

A scheduler evaluates selectors that the API server has accepted, so nothing is hidden behind feature gates here. The
libraries of 1.34 to 1.36 differ from those of 1.37 in `includes` and in the type of attributes alone: 1.34 and 1.35 have
neither that function nor lists, 1.36 has its own form of it.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec

from dra_extender.cel.library import authz as library_authz
from dra_extender.cel.library import core as library_core
from dra_extender.cel.library import formats as library_format
from dra_extender.cel.library import lists as library_lists
from dra_extender.cel.library import network as library_network
from dra_extender.cel.library import optional as library_optional
from dra_extender.cel.library import quantity as library_quantity
from dra_extender.cel.library import regex as library_regex
from dra_extender.cel.library import semver as library_semver
from dra_extender.cel.library import strings as library_strings
from dra_extender.cel.library import time as library_time
from dra_extender.cel.library import url as library_url
from dra_extender.cel.types.declarations import Function, Library, merge
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


def _functions(*own: tuple[Function, ...]) -> Library:
    return merge(
        library_core.FUNCTIONS,
        library_optional.FUNCTIONS,
        library_strings.FUNCTIONS,
        library_lists.FUNCTIONS,
        *own,
        library_regex.FUNCTIONS,
        library_quantity.FUNCTIONS,
        library_semver.FUNCTIONS,
        library_time.FUNCTIONS,
        library_url.FUNCTIONS,
        library_network.FUNCTIONS,
        library_format.FUNCTIONS,
        library_authz.FUNCTIONS,
    )


def _environment(functions: Library, attribute: Type) -> Environment:
    fields = {
        "driver": STRING,
        "allowMultipleAllocations": BOOL,
        "attributes": map_of(STRING, map_of(STRING, attribute)),
        "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
    }
    return Environment(functions, fields, attribute)


_SCALARS_ONLY: Final = _environment(_functions(), ANY)
ENVIRONMENTS: Final[Mapping[Release, Environment]] = {
    Release.V1_34: _SCALARS_ONLY,
    Release.V1_35: _SCALARS_ONLY,
    Release.V1_36: _environment(_functions(library_lists.CAPPED_INCLUDES), DYN),
    Release.V1_37: _environment(_functions(library_lists.INCLUDES), DYN),
}
DEVICE_FIELDS: Final[Mapping[str, Type]] = ENVIRONMENTS[LATEST].device
FUNCTIONS: Final[Library] = ENVIRONMENTS[LATEST].functions
