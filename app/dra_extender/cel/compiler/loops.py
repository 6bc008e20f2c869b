"""Loops, and the macros that bind variables.

The constants are the costs per round of upstream's expansions, without those of the written parts.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from dra_extender.cel.compiler.code import CompiledPart, EvaluatePart, first_failure
from dra_extender.cel.cost import (
    ELEMENT_WORK,
    ENTRY_WORK,
    KEY_WORK,
    LAZY_WORK,
    LIST_COST,
    LOOP_WORK,
    MAX_ELEMENTS,
    ROUND_WORK,
    EvaluationFrame,
)
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.library.lists import self_compared, sort_by_keys
from dra_extender.cel.native.equality import charge_key
from dra_extender.cel.types import typed_ast
from dra_extender.cel.values.values import (
    LISTS,
    MAPS,
    NONE,
    DomainMap,
    Optional,
    from_map_key,
    keys_of,
    map_key,
    no_overload,
    type_name,
)

_RESULT: Final = 1
_APPEND: Final = 2
_INSERT: Final = 3
_MERGE: Final = 2
_SORT: Final = 3
_SHOWN: Final = 200
"""The most characters of a key in a message."""


class FailedVariable(msgspec.Struct, frozen=True):
    """A variable of cel.bind whose evaluation failed; each further use fails with the same error without an evaluation."""

    reason: str


def compile_loop(
    node: typed_ast.ComprehensionLoop,
    source: CompiledPart,
    condition: CompiledPart | None,
    body: CompiledPart,
    work: int,
) -> CompiledPart:
    """Compile a loop over a list or map; `work` is that of the condition and the body, which is charged for each round."""
    work_per_round = ROUND_WORK + work + (0 if node.source.type.kind == "list" else KEY_WORK)
    if len(node.slots) == 1:
        over: _Range = node.slots[0], source.evaluate, elements_of
    else:
        over = slice(node.slots[0], node.slots[-1] + 1), source.evaluate, pairs_of
    if node.kind in _QUANTIFIERS:
        evaluate = _quantified(over, body, work_per_round, _QUANTIFIERS[node.kind])
    else:
        work_per_round += ELEMENT_WORK if node.kind == "list" else ENTRY_WORK
        evaluate = _collecting(over, condition, work_per_round, _adding(node, body))
    return CompiledPart(evaluate=evaluate, cost=source.cost, work=LOOP_WORK)


_Range = tuple[Any, EvaluatePart, Callable[[Any], Iterable[Any]]]
"""The index or slice of a round's variables in the frame's slots, the source, and from its value to the variables by round."""


def elements_of(value: Any) -> Iterable[Any]:
    """Return the elements of a list or the keys of a map, over which a loop with one variable runs."""
    kind = type(value)
    if kind in LISTS or kind is DomainMap:
        return value  # type: ignore[no-any-return]
    if kind in MAPS:
        return keys_of(value)
    raise CelRuntimeError(f"no such overload: got '{type_name(value)}', expected iterable type")


def pairs_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the indexes and elements of a list, or the entries of a map, over which a loop with two variables runs."""
    if type(value) in LISTS:
        return enumerate(value)
    if type(value) in MAPS:
        return ((from_map_key(key), item) for key, item in value.items())
    raise CelRuntimeError(f"no such overload: got '{type_name(value)}', expected iterable type")


class _Quantifier(NamedTuple):
    """What all, exists and exists_one differ in.

    Attributes:
        counted: The value of the predicate that counts.
        enough: How many such values end the loop; 0 if it always goes on.
        check_cost: The cost of the check whether the loop goes on, in each round.
        count_cost: The cost of counting a value.
        result_cost: The cost of the result.
    """

    counted: bool
    enough: int
    check_cost: int
    count_cost: int
    result_cost: int


_QUANTIFIERS: Final = {
    "all": _Quantifier(counted=False, enough=1, check_cost=2, count_cost=0, result_cost=1),
    "exists": _Quantifier(counted=True, enough=1, check_cost=3, count_cost=0, result_cost=1),
    "exists_one": _Quantifier(counted=True, enough=0, check_cost=-1, count_cost=2, result_cost=2),
}


def _quantified(over: _Range, body: CompiledPart, work_per_round: int, quantifier: _Quantifier) -> EvaluatePart:
    """Compile all, exists or exists_one: an error of a round is raised only if no other round decides."""
    slot, source, items = over
    counted, enough, check_cost, count_cost, result_cost = quantifier
    predicate = body.evaluate
    step = body.cost + check_cost + 1

    def evaluate(frame: EvaluationFrame) -> bool:
        slots = frame.slots
        failure: str | None = None
        count = 0
        decided = False
        for item in items(source(frame)):
            if decided:
                frame.cost += check_cost
                break
            slots[slot] = item
            frame.cost += step
            frame.work = work = frame.work + work_per_round
            if work >= frame.next_poll:
                frame.check()
            try:
                value = predicate(frame)
            except CelRuntimeError as error:
                failure = first_failure(frame, error, failure)
                continue
            if value is counted:
                count += 1
                decided = count == enough
                if count_cost:
                    frame.cost += count_cost
            elif value is not True and value is not False:
                failure = failure or str(no_overload(value))
        frame.cost += result_cost
        if failure is not None and not decided:
            raise CelRuntimeError(failure)
        return (count == 1) is counted

    return evaluate


class _Addition(NamedTuple):
    """What a round adds to the list or map that a loop builds, and the cost of a round that passes the condition."""

    make: Callable[[], Any]
    add: Callable[[EvaluationFrame, Any], None]
    cost: int


def _adding(node: typed_ast.ComprehensionLoop, body: CompiledPart) -> _Addition:
    transform = body.evaluate
    if node.kind == "list":

        def append(frame: EvaluationFrame, into: list[Any]) -> None:
            into.append(transform(frame))

        return _Addition(list, append, body.cost + _APPEND + (0 if body.constant else LIST_COST))
    if node.kind == "map":
        slot = node.slots[0]

        def insert(frame: EvaluationFrame, into: dict[Any, Any]) -> None:
            _insert_entry(frame, into, frame.slots[slot], transform(frame))

        return _Addition(dict, insert, body.cost + _INSERT)

    def merge(frame: EvaluationFrame, into: dict[Any, Any]) -> None:
        entries = transform(frame)
        if type(entries) not in MAPS:
            raise no_overload(entries)
        for key, value in entries.items():
            frame.spend(ENTRY_WORK)
            _insert_entry(frame, into, from_map_key(key), value)

    return _Addition(dict, merge, body.cost + _MERGE)


def _insert_entry(frame: EvaluationFrame, into: dict[Any, Any], key: Any, value: Any) -> None:
    dict_key = map_key(key)
    charge_key(frame, dict_key, len(into))
    if dict_key in into:
        raise CelRuntimeError(f"insert failed: key {key[:_SHOWN] if type(key) is str else key} already exists")
    if len(into) >= MAX_ELEMENTS:
        raise CelCostError(f"the evaluation was stopped: it builds a map of more than {MAX_ELEMENTS} entries")
    into[dict_key] = value


def _collecting(over: _Range, condition: CompiledPart | None, work_per_round: int, addition: _Addition) -> EvaluatePart:
    """Compile a loop that builds a list or a map from the rounds that pass the condition."""
    slot, source, items = over
    make, add, cost = addition
    passes = None if condition is None else condition.evaluate
    step, cost_of_taken = (cost, 0) if condition is None else (condition.cost, cost)

    def evaluate(frame: EvaluationFrame) -> Any:
        built = make()
        slots = frame.slots
        failure: str | None = None
        for item in items(source(frame)):
            slots[slot] = item
            frame.cost += step
            frame.work = work = frame.work + work_per_round
            if work >= frame.next_poll:
                frame.check()
            try:
                if passes is not None:
                    value = passes(frame)
                    if value is False:
                        continue
                    if value is not True:
                        raise no_overload(value)
                    frame.cost += cost_of_taken
                add(frame, built)
            except CelRuntimeError as error:
                failure = first_failure(frame, error, failure)
        frame.cost += _RESULT
        if failure is not None:
            raise CelRuntimeError(failure)
        return built

    return evaluate


def compile_bind(slot: int, value: CompiledPart, body: CompiledPart) -> CompiledPart:
    """Compile cel.bind: its value is evaluated on first use."""
    evaluate_body, evaluate_value = body.evaluate, charging(value)

    def evaluate(frame: EvaluationFrame) -> Any:
        frame.slots[slot] = UnevaluatedVariable(evaluate_value)
        return evaluate_body(frame)

    return CompiledPart(evaluate=evaluate, cost=body.cost, work=LAZY_WORK)


def charging(part: CompiledPart) -> EvaluatePart:
    """Return a closure that charges the constant cost of a part and evaluates it."""
    evaluate_part, cost = part.evaluate, part.cost

    def evaluate(frame: EvaluationFrame) -> Any:
        frame.cost += cost
        return evaluate_part(frame)

    return evaluate


class UnevaluatedVariable(msgspec.Struct, frozen=True):
    """A variable of cel.bind before its first use."""

    evaluate: EvaluatePart


def lazy_variable(slot: int) -> EvaluatePart:
    """Compile a variable of cel.bind."""

    def evaluate(frame: EvaluationFrame) -> Any:
        value = frame.slots[slot]
        kind = type(value)
        if kind is UnevaluatedVariable:
            try:
                value = value.evaluate(frame)
            except CelCostError:
                raise
            except CelRuntimeError as error:
                frame.slots[slot] = FailedVariable(str(error))
                raise
            frame.slots[slot] = value
        elif kind is FailedVariable:
            raise CelRuntimeError(value.reason)
        return value

    return evaluate


def compile_optional_map(
    node: typed_ast.OptionalMap, source: CompiledPart, body: CompiledPart, work: int
) -> CompiledPart:
    """Compile optMap and optFlatMap; as in upstream's expansion, the source is evaluated again for its value; that takes `work`."""
    slot, flat = node.slot, node.flat
    evaluate_source, evaluate_body = source.evaluate, body.evaluate
    cost = body.cost + (0 if flat else 1)
    value_cost = source.cost + 1

    def use(frame: EvaluationFrame) -> Any:
        frame.cost += value_cost
        frame.spend(LAZY_WORK + 2 * work)
        return evaluate_source(frame).value

    def evaluate(frame: EvaluationFrame) -> Any:
        value = evaluate_source(frame)
        if type(value) is not Optional:
            raise no_overload(value)
        if not value.present:
            frame.cost += 1
            return NONE
        frame.cost += cost
        frame.slots[slot] = UnevaluatedVariable(use)
        result = evaluate_body(frame)
        return result if flat else Optional(present=True, value=result)

    return CompiledPart(evaluate=evaluate, cost=source.cost + 1, work=LAZY_WORK + LOOP_WORK)


def compile_sort(node: typed_ast.Sort, source: CompiledPart, key: CompiledPart, work: int) -> CompiledPart:
    """Compile sortBy; `work` is that of the key, which is charged for each element."""
    work_per_round = 2 * ROUND_WORK + work
    evaluate_source, evaluate_key, slot, strict = source.evaluate, key.evaluate, node.slot, node.strict
    step = key.cost + _APPEND + (0 if key.constant else LIST_COST)

    def evaluate(frame: EvaluationFrame) -> Any:
        values = evaluate_source(frame)
        keys = []
        failure: str | None = None
        for value in elements_of(values):
            frame.cost += step
            frame.spend(work_per_round)
            frame.slots[slot] = value
            try:
                keys.append(evaluate_key(frame))
            except CelRuntimeError as error:
                failure = first_failure(frame, error, failure)
        frame.cost += _RESULT
        if failure is not None:
            raise CelRuntimeError(failure)
        if type(values) not in LISTS:
            raise no_overload(values)
        if strict:
            frame.cost += self_compared(frame, (keys,), None)
        return sort_by_keys(frame, values, keys)

    return CompiledPart(evaluate=evaluate, cost=source.cost + _SORT, work=LOOP_WORK)
