"""Static types, and which of them may be assigned to which."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from dra_extender.cel.budget import TOO_LARGE


class TypeLimitError(Exception):
    """The types of an expression are too large to be compared; sharing lets them double with each variable."""


class Type(msgspec.Struct, frozen=True, gc=False):
    """A type.

    Attributes:
        kind: primitive, dyn, opaque, object, time, list, map, type or variable.
        name: Tells types of one kind apart.
        parameters: The types of elements, keys and values.
        weight: The number of types within it, itself included.
        free: A type variable is within it.
        open: A type variable or dyn is within it, so that values decide about types.
    """

    kind: str
    name: str
    parameters: tuple["Type", ...] = ()
    weight: int = 1
    free: bool = False
    open: bool = False

    def __str__(self) -> str:
        if not self.parameters:
            return self.name
        inner = ", ".join(map(str, self.parameters)) if self.weight <= _SHOWN_WEIGHT else "..."
        return f"{self.name}({inner})"


_SHOWN_WEIGHT: Final = 100
"""Messages shorten types of a greater weight."""


def _primitive(name: str) -> Type:
    """Return a primitive type; each is one object, so primitives compare by identity."""
    return Type("primitive", name)


BOOL: Final = _primitive("bool")
INT: Final = _primitive("int")
UINT: Final = _primitive("uint")
DOUBLE: Final = _primitive("double")
STRING: Final = _primitive("string")
BYTES: Final = _primitive("bytes")
NULL: Final = _primitive("null_type")
DYN: Final = Type("dyn", "dyn", open=True)
ANY: Final = Type("dyn", "any", open=True)
"""The type of attributes before 1.36: like dyn, except that loops do not run over it."""
DEVICE: Final = Type("object", "kubernetes.DRADevice")
DURATION: Final = Type("time", "duration")
TIMESTAMP: Final = Type("time", "timestamp")


def opaque(name: str) -> Type:
    return Type("opaque", name)


QUANTITY: Final = opaque("kubernetes.Quantity")
SEMVER: Final = opaque("kubernetes.Semver")
IP: Final = opaque("net.IP")
CIDR: Final = opaque("net.CIDR")
URL: Final = opaque("kubernetes.URL")
NAMED_FORMAT: Final = opaque("kubernetes.NamedFormat")

NULLABLE: Final = frozenset({"opaque", "object", "time"})
"""Kinds of types to which null can be assigned."""
UNSPECIFIC: Final = frozenset({"dyn", "variable"})
"""Kinds of types that say nothing about a value before it is known."""
COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
"""Types whose values have an order, in the order in which overloads are tried."""


_MAX_WEIGHT: Final = 1000
_COMPARED_PER_STEP: Final = 16
_RESOLVED: Final = 3


def compound(kind: str, name: str, *parameters: Type) -> Type:
    """Return a type with parameters, unless it would be too large."""
    weight = 1
    free = open_ = False
    for item in parameters:
        weight += item.weight
        free = free or item.free
        open_ = open_ or item.open
    if weight > _MAX_WEIGHT:
        raise TypeLimitError(f"the types in the expression are too large: one has more than {_MAX_WEIGHT} within")
    return Type(kind, name, parameters, weight, free, open_)


def list_of(element: Type) -> Type:
    return compound("list", "list", element)


def map_of(key: Type, value: Type) -> Type:
    return compound("map", "map", key, value)


OPTIONAL_NAME: Final = "optional_type"
"""The name of the types of optional values."""


def optional_of(value: Type) -> Type:
    return compound("opaque", OPTIONAL_NAME, value)


def type_of(value: Type) -> Type:
    return compound("type", "type", value)


def variable(name: str) -> Type:
    return Type("variable", name, (), 1, free=True, open=True)


class Substitution:
    """The bindings of type variables so far; an assignment that fails leaves them unchanged."""

    def __init__(self, most_steps: int) -> None:
        """Begin without bindings; more than `most_steps` comparisons are a TypeLimitError."""
        self._most_steps = most_steps
        self._bound: dict[Type, Type] = {}
        self._trail: list[tuple[Type, Type | None]] = []
        self._fresh = 0
        self.steps = 0

    def fresh(self) -> Type:
        """Return a type variable that nothing else uses."""
        self._fresh += 1
        return variable(f"_{self._fresh}")

    def instantiate(self, parameters: tuple[Type, ...], result: Type) -> tuple[tuple[Type, ...], Type]:
        """Return the declared types with fresh variables: each name gets one."""
        for item in parameters:
            if item.free:
                break
        else:
            if not result.free:
                return parameters, result
        names: dict[Type, Type] = {}
        fresh = tuple([self._renamed(item, names) if item.free else item for item in parameters])
        return fresh, self._renamed(result, names) if result.free else result

    def _renamed(self, item: Type, names: dict[Type, Type]) -> Type:
        if item.kind == "variable":
            fresh = names.get(item)
            if fresh is None:
                fresh = names[item] = self.fresh()
            return fresh
        parts = [self._renamed(parameter, names) if parameter.free else parameter for parameter in item.parameters]
        return Type(item.kind, item.name, tuple(parts), item.weight, free=True, open=True)

    def assign(self, values: Sequence[Type], declared: Sequence[Type]) -> bool:
        """Return whether all values fit their declarations together; binds variables if so."""
        trail = self._trail
        if trail:
            trail.clear()
        for value, target in zip(values, declared, strict=True):
            if value is target:
                continue
            if value.kind == "primitive" == target.kind or not self._assignable(value, target):
                break
        else:
            return True
        for target, before in reversed(trail):
            if before is None:
                del self._bound[target]
            else:
                self._bound[target] = before
        return False

    def resolve(self, item: Type, *, free: Type | None = None) -> Type:
        """Return the type with bound variables replaced; unbound ones become `free`, if given."""
        if not item.free:
            return item
        self.step(_RESOLVED)
        if item.kind == "variable":
            bound = self._bound.get(item)
            if bound is not None:
                return self.resolve(bound, free=free)
            return item if free is None else free
        return compound(item.kind, item.name, *(self.resolve(parameter, free=free) for parameter in item.parameters))

    def same(self, left: Type, right: Type) -> bool:
        """Return whether two types are equal; larger types count as more steps."""
        if left is right:
            return True
        self.step(1 + min(left.weight, right.weight) // _COMPARED_PER_STEP)
        return left == right

    def step(self, steps: int = 1) -> None:
        """Count comparisons, which variables that share their bindings can make endless."""
        self.steps += steps
        if self.steps > self._most_steps:
            raise TypeLimitError(TOO_LARGE)

    def _assignable(self, value: Type, target: Type) -> bool:
        kind, target_kind = value.kind, target.kind
        if kind == "primitive" and target_kind == "primitive":
            return value is target
        self.step()
        if target_kind == "variable":
            bound = self._bind(value, target)
            if bound is not None:
                return bound
        if kind == "variable":
            return self._bind(target, value) is True
        if kind == "dyn" or target_kind == "dyn":
            return True
        if NULL in (value, target):
            return (target if value == NULL else value).kind in NULLABLE
        if kind != target_kind or value.name != target.name:
            return False
        if kind == "type":
            return True
        pairs = zip(value.parameters, target.parameters, strict=True)
        return all(self._assignable(value_parameter, target_parameter) for value_parameter, target_parameter in pairs)

    def _bind(self, value: Type, target: Type) -> bool | None:
        """Bind a variable to a type, or to the more general one if it is bound; None if the type contains the variable."""
        if self.same(value, target):
            return True
        bound = self._bound.get(target)
        if bound is None:
            if self._occurs(target, value):
                return None
            self._trail.append((target, None))
            self._bound[target] = value
            return True
        if self.same(value, bound):
            return True
        self.step(bound.weight)
        if not self._assignable(value, bound):
            return False
        general = most_general(value, bound)
        if not self._occurs(target, general):
            self._trail.append((target, bound))
            self._bound[target] = general
        return True

    def _occurs(self, item: Type, within: Type) -> bool:
        self.step()
        if not within.free:
            return False
        if item == within:
            return True
        if within.kind == "variable":
            bound = self._bound.get(within)
            return bound is not None and self._occurs(item, bound)
        return any(self._occurs(item, parameter) for parameter in within.parameters)


def most_general(left: Type, right: Type) -> Type:
    """Return the less specific of two types that fit each other."""
    if left is right:
        return left
    return left if equal_or_less_specific(left, right) else right


def equal_or_less_specific(left: Type, right: Type) -> bool:
    """Return whether `left` says no more than `right`."""
    if left.kind in UNSPECIFIC:
        return True
    if right.kind in UNSPECIFIC:
        return False
    if left.kind != right.kind or left.name != right.name:
        return False
    if left.kind == "type":
        return True
    pairs = zip(left.parameters, right.parameters, strict=True)
    return all(equal_or_less_specific(left_parameter, right_parameter) for left_parameter, right_parameter in pairs)


TYPE_NAMES: Final[Mapping[str, Type]] = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null_type": NULL,
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
    "type": type_of(DYN),
    "optional_type": optional_of(DYN),
    "google.protobuf.Duration": DURATION,
    "google.protobuf.Timestamp": TIMESTAMP,
    "google.protobuf.Empty": Type("object", "google.protobuf.Empty"),
    "google.protobuf.Struct.FieldsEntry": Type("object", "google.protobuf.Struct.FieldsEntry"),
    "net.IP": IP,
    "net.CIDR": CIDR,
}
