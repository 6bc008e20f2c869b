"""Declarations of libraries: functions and their overloads."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import FunctionType
from typing import Any, Final

import msgspec

from dra_extender.cel.cost import METERED_WORK, PYTHON_WORK, Extra
from dra_extender.cel.errors import CelRuntimeError
from dra_extender.cel.native.call import NativeFunction
from dra_extender.cel.types.types import TYPE_NAMES, Type
from dra_extender.cel.values.values import KIND_NAMES, LISTS, MAPS, from_map_key

Implementation = Callable[..., Any]


def unimplemented(*_: Any) -> Any:
    """Stand for the implementation of what is never called: the compiler translates it itself, or no argument can be made."""
    raise CelRuntimeError("no such overload")


class Overload(msgspec.Struct, frozen=True):
    """One signature of a function, with the types of its arguments and result, and its implementation.

    Attributes:
        metered: `implementation` takes the evaluation's frame before its arguments, and charges its work itself.
        unguarded: `implementation` takes any run-time values and checks their types itself (cel-go's DisableTypeGuards).
        member: It is called on its first argument, as `first.name(others)`.
        extra: The cost above one unit. As upstream does, it is charged only if this overload is the only candidate at compile time;
            `Function.extra` is charged in any case.
        native: The native function that `implementation` is; its worst case is charged before each call.
        work: The units of work of one call, without what it charges by the sizes of its arguments.
    """

    parameters: tuple[Type, ...]
    result: Type
    implementation: Implementation
    metered: bool = False
    unguarded: bool = False
    member: bool = False
    extra: Extra | None = None
    native: NativeFunction | None = None
    work: int = 0

    @property
    def charges(self) -> bool:
        """Return whether a call charges the frame before its result is known."""
        return self.metered or self.native is not None


class Function(msgspec.Struct, frozen=True):
    """A function by name: its overloads in order of preference, and the cost that all of them share.

    `shapes` holds the overloads by `member` and by the number of parameters.
    """

    name: str
    overloads: tuple[Overload, ...]
    extra: Extra | None = None
    shapes: Mapping[tuple[bool, int], tuple[Overload, ...]] = {}

    def __post_init__(self) -> None:
        shapes: dict[tuple[bool, int], tuple[Overload, ...]] = {}
        for item in self.overloads:
            shape = item.member, len(item.parameters)
            shapes[shape] = (*shapes.get(shape, ()), item)
        msgspec.structs.force_setattr(self, "shapes", shapes)


Library = Mapping[str, Function]


def function(name: str, *overloads: Overload, extra: Extra | None = None) -> Function:
    return Function(name, overloads, extra)


def overload(
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Implementation | NativeFunction,
    *,
    member: bool = False,
    metered: bool = False,
    unguarded: bool = False,
    extra: Extra | None = None,
    work: int | None = None,
) -> Overload:
    """Declare `name(arguments)`; `work` is needed if a call takes more than most implementations of its kind do."""
    native = implementation if isinstance(implementation, NativeFunction) else None
    if work is None:
        in_python = isinstance(implementation, FunctionType)
        work = METERED_WORK if metered or native is not None else PYTHON_WORK if in_python else 0
    return Overload(
        parameters,
        result,
        implementation.function if isinstance(implementation, NativeFunction) else implementation,
        member=member,
        metered=metered,
        unguarded=unguarded,
        extra=extra,
        native=native,
        work=work,
    )


method: Final = partial(overload, member=True)
"""Declares `first.name(others)`."""


def merge_libraries(*libraries: Iterable[Function]) -> Library:
    """Put libraries together; a function declared twice has the overloads of both, in order."""
    merged: dict[str, Function] = {}
    for library in libraries:
        for item in library:
            declared = merged.get(item.name)
            if declared is None:
                merged[item.name] = item
            else:
                merged[item.name] = Function(
                    item.name, declared.overloads + item.overloads, declared.extra or item.extra
                )
    return merged


_RUNTIME: Final = {
    TYPE_NAMES[name].name if name in TYPE_NAMES else name: frozenset(
        kind for kind, kind_name in KIND_NAMES.items() if kind_name == name
    )
    for name in KIND_NAMES.values()
}
"""The kinds of the values of each type, by the name of the type."""


def accepts(parameter: Type, value: Any) -> bool:
    """Return whether a run-time value may be passed; like upstream, it looks at the first element of a list or map only."""
    kinds = _RUNTIME.get(parameter.name)
    if kinds is None:
        return parameter.kind != "opaque"
    kind = type(value)
    if kind not in kinds:
        return False
    if kind in LISTS:
        return not value or accepts(parameter.parameters[0], value[0])
    if kind in MAPS and value:
        key, item = next(iter(value.items()))
        return accepts(parameter.parameters[0], from_map_key(key)) and accepts(parameter.parameters[1], item)
    return True
