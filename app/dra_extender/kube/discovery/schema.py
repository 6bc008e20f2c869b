"""Fields in the schema of an API (OpenAPI v3), for fields that no release has introduced yet."""

from typing import Final

import msgspec

_RESULT: Final = ".v1.DeviceRequestAllocationResult"
_GROUPS: Final = "compatibilityGroups"


class _Items(msgspec.Struct, frozen=True):
    type: str = ""


class _Values(msgspec.Struct, frozen=True):
    type: str = ""
    items: _Items | None = None


class _Field(msgspec.Struct, frozen=True, rename={"values": "additionalProperties"}):
    type: str = ""
    values: _Values | None = None


class _Type(msgspec.Struct, frozen=True):
    properties: dict[str, msgspec.Raw] = {}


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, msgspec.Raw] = {}


class _Document(msgspec.Struct, frozen=True):
    components: _Components = _Components()


_DOCUMENT: Final = msgspec.json.Decoder(_Document)
_TYPE: Final = msgspec.json.Decoder(_Type)
_FIELD: Final = msgspec.json.Decoder(_Field)
_FORM: Final = _Field(type="object", values=_Values(type="array", items=_Items(type="string")))


def has_allocation_groups(document: bytes) -> bool:
    """Whether results of allocations have `compatibilityGroups` in the form of KEP-5963: counter set -> list of groups.

    `document` is the OpenAPI v3 document of resource.k8s.io/v1.  A field of that name and of another form is none that we know.

    Raises:
        msgspec.DecodeError: this is no such document: it does not describe the results of allocations.
    """
    schemas = _DOCUMENT.decode(document).components.schemas
    described = next((each for name, each in schemas.items() if name.endswith(_RESULT)), None)
    if described is None:
        raise msgspec.DecodeError(f"no schema {_RESULT.removeprefix('.v1.')}")
    field = _TYPE.decode(described).properties.get(_GROUPS)
    try:
        return field is not None and _FIELD.decode(field) == _FORM
    except msgspec.ValidationError:
        return False
