"""What compiling single calls takes beside their nodes, known before anything is compiled."""

from collections.abc import Sequence
from typing import Final

from dra_extender.cel.native.patterns import PATTERN_FUNCTIONS, pattern_cost
from dra_extender.cel.runtime.compile_limits import CALL_UNITS, FOLD_UNITS
from dra_extender.cel.types import typed_ast

_READS: Final = frozenset({typed_ast.DeviceVariable, typed_ast.Variable, typed_ast.FieldSelection, typed_ast.Index})
_WORK_PER_UNIT: Final = 2


def call_units(name: str, arguments: Sequence[typed_ast.TypedNode]) -> int:
    """Units for compiling a call: with nothing but constants it is evaluated, and a constant pattern is compiled."""
    units = CALL_UNITS
    if name in PATTERN_FUNCTIONS:
        units += sum([pattern_cost(text) // _WORK_PER_UNIT for text in _texts(arguments)])
    if name.isidentifier() and _READS.isdisjoint(map(type, arguments)):
        units += FOLD_UNITS + sum(map(len, _texts(arguments)))
    return units


def _texts(arguments: Sequence[typed_ast.TypedNode]) -> list[str]:
    return [each.value for each in arguments if type(each) is typed_ast.Constant and type(each.value) is str]
