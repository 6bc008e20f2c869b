"""Differences from upstream that are meant to be: by name, with the reason and a sign by which each is known.

What they mean for users is in docs/reference/differences.md; a difference that none of these explains is a failure.
"""

import re
from ast import literal_eval
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import msgspec
from dra_extender.cel import cost, program
from dra_extender.cel import device as device_values
from dra_extender.cel.compiler import calls, selections
from dra_extender.cel.cost import EvaluationFrame
from dra_extender.cel.environment import ENVIRONMENTS, LATEST
from dra_extender.cel.errors import CelError, CelRuntimeError
from dra_extender.cel.native import equality, patterns
from dra_extender.cel.program import compile_expression
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.declarations import Function, Implementation, Overload
from dra_extender.cel.values.quantity import Quantity, QuantitySum, read_uncached

from tests.parity.selectors import Outcome, device, ours

Json = Mapping[str, Any]

_LEADING_DOT: Final = re.compile(r"(?:^|[(\[{,:?!=<>&|+*/%-])\s*\.\s*[A-Za-z_]")
_ODD_KEY: Final = re.compile(r"\{[\s(]*[\[{]")
_KEEPING: Final = re.compile(r"bind\(|optMap\(|optFlatMap\(")
_MANY: Final = 1000
_COMPARING: Final = ("compareTo", "isGreaterThan", "isLessThan")


class Difference(NamedTuple):
    """One expression that was answered differently; `answers` are what upstream says when asked again and again."""

    scenario: Json
    ours: Outcome
    theirs: Outcome
    answer: Json
    answers: list[Outcome]


class Deliberate(NamedTuple):
    """A kind of difference: `why` it is there, and whether a difference is of it."""

    why: str
    explains: Callable[[Difference], bool]


def _text(difference: Difference) -> str:
    return str(difference.scenario["expression"])


def _undecided(found: Difference) -> bool:
    answers = {*found.answers, found.theirs}
    verdicts = {_unordered(answer.verdict) for answer in answers}
    return len(answers) > 1 and _unordered(found.ours.verdict) in verdicts


def _unordered(verdict: str) -> str:
    """Ten entries of a map that become a list have more orders than can be asked for."""
    if not verdict.startswith("{"):
        return verdict
    return str(
        {kind: sorted(value) if isinstance(value, tuple) else value for kind, value in literal_eval(verdict).items()}
    )


def _compared(found: Difference) -> bool:
    """Whether we would answer as upstream does if what is compared with a decimal became one."""
    environment = ENVIRONMENTS[LATEST]
    functions = {**environment.functions, **{name: _changing(environment.functions[name]) for name in _COMPARING}}
    changed = {LATEST: msgspec.structs.replace(environment, functions=functions)}
    with (
        patch.object(program, "ENVIRONMENTS", changed),
        patch.object(calls, "fold_call", lambda *_: None),
        patch.object(device_values, "read_quantity", read_uncached),
    ):
        return ours(found.scenario) == found.theirs


def _changing(item: Function) -> Function:
    overloads = (msgspec.structs.replace(each, implementation=_turning(each.implementation)) for each in item.overloads)
    return Function(item.name, tuple(overloads), item.extra)


def _grown(found: Difference) -> bool:
    """Whether our evaluation added something to an empty list where a macro keeps a value."""
    met = []

    def noting(item: Overload) -> Overload:
        def run(frame: EvaluationFrame, one: Any, other: Any) -> Any:
            if not one and other:
                met.append(one)
            return item.implementation(frame, one, other)

        return msgspec.structs.replace(item, implementation=run) if item.result.kind == "list" else item

    functions = ENVIRONMENTS[LATEST].functions
    adding = functions["_+_"]
    noted = {**functions, "_+_": Function("_+_", tuple(map(noting, adding.overloads)), adding.extra)}
    environments = {LATEST: msgspec.structs.replace(ENVIRONMENTS[LATEST], functions=noted)}
    with patch.object(program, "ENVIRONMENTS", environments):
        ours(found.scenario)
    return bool(met) and bool(_KEEPING.search(_text(found)))


def _turning(run: Implementation) -> Implementation:
    def turned(one: Any, other: Any) -> Any:
        if isinstance(one, Quantity) and isinstance(other, Quantity) and other.decimal:
            msgspec.structs.force_setattr(one, "decimal", True)
        return run(one, other)

    return turned


def _panics(found: Difference) -> bool:
    return "panic" in found.answer or "internal error" in found.answer.get("runError", "")


def _strangers(found: Difference) -> bool:
    """Whether our evaluation compared a value of a library's type with something else inside of a list or map."""
    met = []

    def recording(frame: EvaluationFrame, one: Any, other: Any) -> bool:
        if type(one) in equality.STRICT and (type(one) is not type(other) or type(one) is QuantitySum):
            met.append(one)
        return original(frame, one, other)

    original = equality.elements_equal
    with patch.object(equality, "elements_equal", recording):
        ours(found.scenario)
    return bool(met)


def _dynamic(found: Difference) -> bool:
    """Whether we would answer as upstream does if what is found inside of a dynamic value were not looked into."""

    def closed(node: typed_ast.FieldSelection | typed_ast.Index) -> bool:
        return original(node) and not _inside_dynamic(node)

    original = selections.looks_into_optionals
    with patch.object(selections, "looks_into_optionals", closed):
        return ours(found.scenario) == found.theirs


def _inside_dynamic(node: typed_ast.FieldSelection | typed_ast.Index) -> bool:
    operand = node.operand
    if not isinstance(operand, typed_ast.FieldSelection | typed_ast.Index):
        return False
    while isinstance(operand, typed_ast.FieldSelection | typed_ast.Index) and not operand.optional:
        operand = operand.operand
    return not isinstance(operand, typed_ast.FieldSelection | typed_ast.Index) and operand.type.kind in {
        "dyn",
        "variable",
    }


def _our_error(found: Difference) -> str:
    if found.ours.verdict.startswith("crash"):
        return ""
    try:
        compiled = compile_expression(found.scenario["expression"], derived=found.scenario["kind"] == "derived")
        compiled.evaluate(device(found.scenario["device"]))
    except CelError as error:
        return str(error)
    return ""


def _keys(found: Difference) -> bool:
    """Whether such a map fails here, even if that decides nothing; one that is itself a key is refused by upstream in advance."""
    met: list[str] = []
    original = CelRuntimeError.__init__

    def noting(error: CelRuntimeError, *said: str) -> None:
        met.extend(said)
        original(error, *said)

    with patch.object(CelRuntimeError, "__init__", noting):
        ours(found.scenario)
    refused = "invalid qualifier type: *types.baseMap" in found.answer.get("compileError", "")
    failed = any("unsupported map key type" in said for said in met)
    return failed or (refused and bool(_ODD_KEY.search(_text(found))))


def _dotted(found: Difference) -> bool:
    """Upstream refuses to find a variable behind a dot that begins a name, and names one so that nothing finds it."""
    return found.theirs.verdict == "compile-error" and bool(_LEADING_DOT.search(_text(found)))


def _limited(found: Difference) -> bool:
    """Whether we would answer as upstream does with a thousand times the work that an evaluation may take."""
    with (
        patch.object(cost, "WORK_LIMIT", _MANY * cost.WORK_LIMIT),
        patch.object(cost, "CALL_LIMIT", _MANY * cost.CALL_LIMIT),
        patch.object(patterns, "SCAN_LIMIT", _MANY * patterns.SCAN_LIMIT),
    ):
        return found.ours.verdict == "run-error" and ours(found.scenario) == found.theirs


EXCEPTIONS: Final[Mapping[str, Deliberate]] = {
    "undecided": Deliberate(
        "upstream gives different answers to the same question, because its maps have no order",
        _undecided,
    ),
    "panic": Deliberate("upstream's compiler or evaluation panics; here it is an ordinary error", _panics),
    "compared": Deliberate(
        "comparing an amount with one that is stored as a decimal makes a decimal of it, which is no integer; here it stays",
        _compared,
    ),
    "strangers": Deliberate("inside of lists and maps, a library's type is not equal to another type", _strangers),
    "keys": Deliberate("lists, maps and optional values are no map keys", _keys),
    "messages": Deliberate(
        "no message can be constructed; upstream knows those of protocol buffers, and learns late that there is no 'duration{}'",
        lambda found: "messages cannot be constructed" in _our_error(found),
    ),
    "dynamic": Deliberate("an optional value that is found inside of a dynamic value is looked into", _dynamic),
    "grown": Deliberate(
        "what is added to an empty list that cel.bind or optMap keeps does not change that list", _grown
    ),
    "dotted": Deliberate("a dot before the name of a variable is ignored", _dotted),
    "limited": Deliberate("the work of an evaluation is limited beside its cost", _limited),
}


def explained(difference: Difference) -> str | None:
    """The name of the exception a difference belongs to, if any."""
    return next((name for name, kind in EXCEPTIONS.items() if kind.explains(difference)), None)
