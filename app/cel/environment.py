"""What a device selector may use: the functions of the stored-expression environment and the fields of `device`.

The scheduler evaluates selectors that the API server has accepted, so nothing is hidden behind feature gates here.
"""

from collections.abc import Mapping
from typing import Final

from app.cel import (
    library_core,
    library_lists,
    library_optional,
    library_quantity,
    library_regex,
    library_semver,
    library_strings,
)
from app.cel.declarations import Library, merge
from app.cel.types import BOOL, DYN, QUANTITY, STRING, Type, map_of

DEVICE_FIELDS: Final[Mapping[str, Type]] = {
    "driver": STRING,
    "allowMultipleAllocations": BOOL,
    "attributes": map_of(STRING, map_of(STRING, DYN)),
    "capacity": map_of(STRING, map_of(STRING, QUANTITY)),
}

FUNCTIONS: Final[Library] = merge(
    library_core.FUNCTIONS,
    library_optional.FUNCTIONS,
    library_strings.FUNCTIONS,
    library_lists.FUNCTIONS,
    library_regex.FUNCTIONS,
    library_quantity.FUNCTIONS,
    library_semver.FUNCTIONS,
)
