"""Description of the fields of API objects, beyond what decoding needs.

A struct of the model describes an object of the API.  The annotations of its fields say what an API server accepts there, what a
snapshot keeps, and what redaction does with it.  `fields_of` reads them; decoding, the checks of manifests (`manifests.check`),
snapshots (`inspection.objects`), redaction and the strategies of the property tests all follow.  Bounds are not enforced when
objects are decoded: a newer API server may accept more.
"""

from enum import Enum, auto
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from dra_extender.model.api_json import Value


class Format(Enum):
    """The kind of a text: from it follow the check of manifests, the redaction, and the texts that tests make up."""

    NAME = auto()
    """Any text that names something: UIDs, names of schedulers and nodes."""
    WORD = auto()
    """A word of the API itself, or a name in its place."""
    SENTENCE = auto()
    TIME = auto()
    RESOURCE_VERSION = auto()
    DNS_LABEL = auto()
    SUBDOMAIN = auto()
    DRIVER = auto()
    POOL = auto()
    LABEL_KEY = auto()
    TOLERATION_KEY = auto()
    """The key of a label, or nothing."""
    LABEL_VALUE = auto()
    QUALIFIED_NAME = auto()
    """Of an attribute or a capacity, with or without the domain of a driver."""
    FULLY_QUALIFIED_NAME = auto()
    QUANTITY = auto()
    RESOURCE = auto()
    """Of a container or a node."""
    EXTENDED_RESOURCE = auto()
    REQUEST = auto()
    """The name of a request, or request/alternative."""
    COUNTER_SET = auto()
    """A DNS label; in what the extender freezes, also the physical device that an admin's policy names."""
    SUPPLIED_FIELD = auto()
    """A field of a device that an admin's policy supplied."""
    CAPACITY = auto()
    """The name of a capacity that a request asks for."""
    EXPRESSION = auto()
    """CEL over a device."""
    UNCOMPILED_EXPRESSION = auto()
    """CEL over a device that API servers, and so manifests, may have with errors."""
    ATTRIBUTE_TEXT = auto()
    ATTRIBUTE_VERSION = auto()
    VERSION = auto()
    """Of a kubelet."""
    ANNOTATION = auto()
    """The value of an annotation; its name says what it is."""
    DIGEST = auto()
    """Of names; made anew when they are redacted."""
    PLAIN = auto()
    """Any text, in a field that no snapshot has."""


class Mark(Enum):
    """A mark for what else holds of a field."""

    REQUIRED = auto()
    """An API server refuses an object without the field, though decoding does not."""
    UNCHECKED = auto()
    """Manifests may have any value of the API's shape: the field is the server's, or that of a controller."""
    LEFT_OUT = auto()
    """Neither redacted snapshots nor others have the field, unless it is in a field that is kept WHOLE."""
    WHOLE = auto()
    """Snapshots keep the field with everything in it, described or not."""
    DRAFT = auto()
    """No release has the field; a KEP or the extender's own policy does."""
    FORMER = auto()
    """Releases before 1.37 had the field."""


class Gate(Enum):
    """A feature gate of Kubernetes while which is off an API server drops fields in silence.

    `since`: minor release of Kubernetes 1 that introduced the gate; `always`: the first one in which it is locked on.  Releases
    follow the gate tables of Kubernetes 1.34 to 1.37.
    """

    COMPATIBILITY_GROUPS = ("DRADeviceCompatibilityGroups", 37)
    PARTITIONABLE_DEVICES = ("DRAPartitionableDevices", 33)
    PARTITION_TYPES = ("DRAPartitionableDevicesType", 37)
    CONSUMABLE_CAPACITY = ("DRAConsumableCapacity", 34)
    BINDING_CONDITIONS = ("DRADeviceBindingConditions", 34)
    DEVICE_STATUS = ("DRAResourceClaimDeviceStatus", 32, 37)
    EXTENDED_RESOURCES = ("DRAExtendedResource", 34, 37)
    DEVICE_TAINTS = ("DRADeviceTaints", 33)
    NODE_ALLOCATABLE_RESOURCES = ("DRANodeAllocatableResources", 36)

    def __init__(self, gate_name: str, since: int, always: int | None = None) -> None:
        self.gate_name = gate_name
        self.since = since
        self.always = always


class OneOf:
    """The values that an API server accepts."""

    def __init__(self, *values: str | bool) -> None:
        self.values = values


class Items(NamedTuple):
    """The number of items that a list or a mapping may have, and the field in which they have to differ (empty: altogether)."""

    min_items: int = 0
    max_items: int | None = None
    once: str | None = None


class NumberRange(NamedTuple):
    """The whole numbers that an API server accepts."""

    least: int = -(2**63)
    below: int = 2**63


class Described(NamedTuple):
    """The type that describes a field of which less is decoded."""

    type: Any


class Text(NamedTuple):
    """A text; `one_of` is empty unless it is an enumeration."""

    format: Format
    one_of: tuple[str | bool, ...] = ()


class Number(NamedTuple):
    """A whole number."""

    bounds: NumberRange


class Flag(NamedTuple):
    """True or false."""

    only_true: bool


class Anything(NamedTuple):
    """A value that is not described; `type` has its own check."""

    type: Any


class ListOf(NamedTuple):
    """A list."""

    item: "Shape"
    items: Items


class MapOf(NamedTuple):
    """An object whose fields are names."""

    key: "Shape"
    value: "Shape"
    items: Items
    labels: bool


class Record(NamedTuple):
    """An object that a struct describes."""

    struct: type[Value]


Shape = Text | Number | Flag | Anything | ListOf | MapOf | Record
"""What a value of a field looks like."""


class Field(NamedTuple):
    """A field of an object, by the name that JSON has; without its `gate` an API server drops it."""

    name: str
    shape: Shape
    marks: frozenset[Mark]
    gate: Gate | None = None

    @property
    def accepted(self) -> bool:
        """Return whether a manifest of Kubernetes 1.37 may have the field."""
        return Mark.FORMER not in self.marks


class Labels(Enum):
    """Marks a mapping of labels: their values are compared by node selectors."""

    LABELS = auto()


@cache
def fields_of(struct: type[Value]) -> tuple[Field, ...]:
    """Return the fields of an object of the API that the struct describes, those that nothing decodes last.

    Raises:
        TypeError: the annotation of a field does not say what its text is.
    """
    hints = get_type_hints(struct, include_extras=True)
    described = {struct_field.encode_name: hints[struct_field.name] for struct_field in msgspec.structs.fields(struct)}
    required = {struct_field.encode_name for struct_field in msgspec.structs.fields(struct) if struct_field.required}
    described.update(struct.unread)
    return tuple(_field(struct, name, hint, required) for name, hint in described.items())


def _field(struct: type[Value], name: str, hint: Any, required: set[str]) -> Field:
    plain, extras = _parted(hint)
    marks = {extra for extra in extras if isinstance(extra, Mark)}
    marks |= {Mark.REQUIRED} if name in required else set()
    try:
        return Field(
            name,
            _shape(plain, extras),
            frozenset(marks),
            next((extra for extra in extras if isinstance(extra, Gate)), None),
        )
    except TypeError as problem:
        raise TypeError(f"{struct.__name__}.{name}: {problem}") from problem


def _parted(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type without None and without metadata, and the metadata, those of a described type first."""
    if get_origin(hint) is Annotated:
        inner, *extras = get_args(hint)
        described = next((extra for extra in extras if isinstance(extra, Described)), None)
        plain, more = _parted(inner if described is None else described.type)
        return plain, (*more, *extras)
    if get_origin(hint) in (Union, UnionType):
        kinds = [argument for argument in get_args(hint) if argument is not NoneType]
        return _parted(kinds[0]) if len(kinds) == 1 else (hint, ())
    return hint, ()


def shape_of(hint: Any) -> Shape:
    """Return what a value of this annotated type looks like.

    Raises:
        TypeError: the annotation does not say what the text is.
    """
    return _shape(*_parted(hint))


def _shape(plain: Any, extras: tuple[Any, ...]) -> Shape:
    items = next((extra for extra in extras if isinstance(extra, Items)), Items())
    text_format = next((extra for extra in extras if isinstance(extra, Format)), None)
    one_of = next((extra.values for extra in extras if isinstance(extra, OneOf)), ())
    origin = get_origin(plain)
    if origin is tuple:
        return ListOf(shape_of(get_args(plain)[0]), items)
    if origin is dict:
        key, value = get_args(plain)
        return MapOf(shape_of(key), shape_of(value), items, labels=Labels.LABELS in extras)
    if isinstance(plain, type) and issubclass(plain, Value):
        return Record(plain)
    if plain is bool:
        return Flag(only_true=one_of == (True,))
    if plain is int:
        return Number(next((extra for extra in extras if isinstance(extra, NumberRange)), NumberRange()))
    if text_format is not None or one_of:
        return Text(text_format or Format.WORD, one_of)
    if plain in (Any, msgspec.Raw):
        return Anything(plain)
    raise TypeError("the annotation does not say what the text is, e.g. Format.DNS_LABEL")


class Empty(Value, frozen=True):
    """An object of which only the presence matters."""


Name = Annotated[str, Format.NAME]
Word = Annotated[str, Format.WORD]
Sentence = Annotated[str, Format.SENTENCE]
Time = Annotated[str, Format.TIME]
DnsLabel = Annotated[str, Format.DNS_LABEL]
Subdomain = Annotated[str, Format.SUBDOMAIN]
DriverName = Annotated[str, Format.DRIVER]
PoolName = Annotated[str, Format.POOL]
LabelKey = Annotated[str, Format.LABEL_KEY]
LabelValue = Annotated[str, Format.LABEL_VALUE]
QualifiedName = Annotated[str, Format.QUALIFIED_NAME]
FullyQualifiedName = Annotated[str, Format.FULLY_QUALIFIED_NAME]
Quantity = Annotated[str, Format.QUANTITY]
Amount = Annotated[str | int | float, Format.QUANTITY]
"""A quantity that people may write as a number."""
Annotation = Annotated[str, Format.ANNOTATION]
Resource = Annotated[str, Format.RESOURCE]
RequestName = Annotated[str, Format.REQUEST]
Count = Annotated[int, NumberRange(least=1)]
"""A number above 0."""
Natural = Annotated[int, NumberRange(least=0)]
Replicas = Annotated[int, NumberRange(0, 2**31)]
