"""Loops, and the macros that bind variables.

The constants are the costs per round of upstream's expansions, without those of the written parts.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from dra_extender.cel.compiler.code import CompiledPart, Run, first_failure
from dra_extender.cel.cost import LIST_COST, MAX_ELEMENTS, EvaluationFrame
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

_ALL_CHECK: Final = 2
_EXISTS_CHECK: Final = 3
_RESULT: Final = 1
_COUNT_RESULT: Final = 2
_COUNT: Final = 2
_APPEND: Final = 2
_INSERT: Final = 3
_MERGE: Final = 2
_SORT: Final = 3
_ENTRY_WORK: Final = 8
_SHOWN: Final = 200
"""The most characters of a key in a message."""

_AddRound = Callable[[EvaluationFrame, Any], None]


class FailedVariable:
    """A variable of cel.bind whose evaluation failed; each further use fails with the same error without an evaluation."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


def compile_loop(
    node: typed_ast.ComprehensionLoop,
    source: CompiledPart,
    condition: CompiledPart | None,
    body: CompiledPart,
    work_per_round: int,
) -> CompiledPart:
    """Compile a loop over a list or map; `work_per_round` is charged for each round."""
    if node.kind in {"all", "exists"}:
        exists = node.kind == "exists"
        check_cost = _EXISTS_CHECK if exists else _ALL_CHECK
        run = _quantifier(_range(node.slots, source.run), body, work_per_round, check_cost=check_cost, absorbing=exists)
        return CompiledPart(run=run, cost=source.cost)
    if node.kind == "exists_one":
        return CompiledPart(run=_exactly_one(_range(node.slots, source.run), body, work_per_round), cost=source.cost)
    loop = _Loop(*_range(node.slots, source.run), condition, work_per_round)
    if node.kind == "list":
        step = body.cost + _APPEND + (0 if body.constant else LIST_COST)
        return CompiledPart(run=_collect_list(loop, body, step), cost=source.cost)
    if node.kind == "map":
        return CompiledPart(run=_collect_map(loop, body, node.slots[0]), cost=source.cost)
    return CompiledPart(run=_collect_entries(loop, body), cost=source.cost)


_Range = tuple[Any, Run, Callable[[Any], Iterable[Any]]]
"""The index or slice of a round's variables in the frame's slots, the source, and from its value to the variables by round."""


def _range(slots: tuple[int, ...], source: Run) -> _Range:
    if len(slots) == 1:
        return slots[0], source, _elements
    return slice(slots[0], slots[0] + len(slots)), source, _pairs


def _elements(value: Any) -> Iterable[Any]:
    kind = type(value)
    if kind in LISTS or kind is DomainMap:
        return value  # type: ignore[no-any-return]
    if kind in MAPS:
        return keys_of(value)
    raise CelRuntimeError(f"no such overload: got '{type_name(value)}', expected iterable type")


def _pairs(value: Any) -> Iterable[tuple[Any, Any]]:
    if type(value) in LISTS:
        return enumerate(value)
    if type(value) in MAPS:
        return ((from_map_key(key), item) for key, item in value.items())
    raise CelRuntimeError(f"no such overload: got '{type_name(value)}', expected iterable type")


def _quantifier(over: _Range, body: CompiledPart, work_per_round: int, *, check_cost: int, absorbing: bool) -> Run:
    """Compile all and exists: an error is raised only if no round decides."""
    slot, source, items = over
    predicate = body.run
    step = body.cost + check_cost + 1

    def run(frame: EvaluationFrame) -> bool:
        slots = frame.slots
        failure: str | None = None
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
            if value is absorbing:
                decided = True
            elif value is not True and value is not False:
                failure = failure or str(no_overload(value))
        frame.cost += _RESULT
        if failure is not None and not decided:
            raise CelRuntimeError(failure)
        return decided is absorbing

    return run


def _exactly_one(over: _Range, body: CompiledPart, work_per_round: int) -> Run:
    slot, source, items = over
    predicate, step = body.run, body.cost

    def run(frame: EvaluationFrame) -> bool:
        slots = frame.slots
        count = 0
        failure: str | None = None
        for item in items(source(frame)):
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
            if value is True:
                frame.cost += _COUNT
                count += 1
            elif value is not False:
                failure = failure or str(no_overload(value))
        frame.cost += _COUNT_RESULT
        if failure is not None:
            raise CelRuntimeError(failure)
        return count == 1

    return run


class _Loop(msgspec.Struct, frozen=True):
    """A loop that builds a list or a map; `collector` takes what a round adds."""

    slot: Any
    source: Run
    items: Callable[[Any], Iterable[Any]]
    condition: CompiledPart | None
    work_per_round: int

    def collector(self, cost: int, add: _AddRound) -> _AddRound:
        """Run `add` for each round that passes the condition."""
        slot, source, items, work_per_round = self.slot, self.source, self.items, self.work_per_round
        condition = self.condition
        passes = None if condition is None else condition.run
        step, cost_of_taken = (cost, 0) if condition is None else (condition.cost, cost)

        def run(frame: EvaluationFrame, into: Any) -> None:
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
                        if not _truth(passes(frame)):
                            continue
                        frame.cost += cost_of_taken
                    add(frame, into)
                except CelRuntimeError as error:
                    failure = first_failure(frame, error, failure)
            if failure is not None:
                frame.cost += _RESULT
                raise CelRuntimeError(failure)

        return run


def _truth(value: Any) -> bool:
    if value is True or value is False:
        return value
    raise no_overload(value)


def _build(loop: _Loop, make: Callable[[], Any], cost: int, add: _AddRound) -> Run:
    collect = loop.collector(cost, add)

    def run(frame: EvaluationFrame) -> Any:
        built = make()
        collect(frame, built)
        frame.cost += _RESULT
        return built

    return run


def _collect_list(loop: _Loop, body: CompiledPart, cost: int) -> Run:
    transform = body.run

    def add(frame: EvaluationFrame, into: list[Any]) -> None:
        into.append(transform(frame))

    return _build(loop, list, cost, add)


def _collect_map(loop: _Loop, body: CompiledPart, slot: int) -> Run:
    transform = body.run

    def add(frame: EvaluationFrame, into: dict[Any, Any]) -> None:
        _insert_entry(frame, into, frame.slots[slot], transform(frame))

    return _build(loop, dict, body.cost + _INSERT, add)


def _insert_entry(frame: EvaluationFrame, into: dict[Any, Any], key: Any, value: Any) -> None:
    dict_key = map_key(key)
    charge_key(frame, dict_key, len(into))
    if dict_key in into:
        raise CelRuntimeError(f"insert failed: key {_shown_key(key)} already exists")
    if len(into) >= MAX_ELEMENTS:
        raise CelCostError(f"the evaluation was stopped: it builds a map of more than {MAX_ELEMENTS} entries")
    into[dict_key] = value


def _shown_key(key: Any) -> Any:
    return key[:_SHOWN] if type(key) is str else key


def _collect_entries(loop: _Loop, body: CompiledPart) -> Run:
    transform = body.run

    def add(frame: EvaluationFrame, into: dict[Any, Any]) -> None:
        made = transform(frame)
        if type(made) not in MAPS:
            raise no_overload(made)
        for key, value in made.items():
            frame.spend(_ENTRY_WORK)
            _insert_entry(frame, into, from_map_key(key), value)

    return _build(loop, dict, body.cost + _MERGE, add)


def compile_bind(slot: int, value: CompiledPart, body: CompiledPart) -> CompiledPart:
    """Compile cel.bind: its value is evaluated on first use."""
    run_value, run_body, cost = value.run, body.run, value.cost

    def evaluate(frame: EvaluationFrame) -> Any:
        frame.cost += cost
        return run_value(frame)

    def run(frame: EvaluationFrame) -> Any:
        frame.slots[slot] = UnevaluatedVariable(evaluate)
        return run_body(frame)

    return CompiledPart(run=run, cost=body.cost)


class UnevaluatedVariable:
    """A variable of cel.bind before its first use."""

    __slots__ = ("evaluate",)

    def __init__(self, evaluate: Run) -> None:
        self.evaluate = evaluate


def lazy_variable(slot: int) -> Run:
    """Compile a variable of cel.bind."""

    def run(frame: EvaluationFrame) -> Any:
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

    return run


def compile_optional_map(
    node: typed_ast.OptionalMap, source: CompiledPart, body: CompiledPart, work_per_round: int
) -> CompiledPart:
    """Compile optMap and optFlatMap; as in upstream's expansion, the source is evaluated again for its value."""
    slot, flat = node.slot, node.flat
    run_source, run_body = source.run, body.run
    cost = body.cost + (0 if flat else 1)
    value_cost = source.cost + 1

    def use(frame: EvaluationFrame) -> Any:
        frame.cost += value_cost
        frame.spend(4 * work_per_round)
        return run_source(frame).value

    def evaluate(frame: EvaluationFrame) -> Any:
        frame.slots[slot] = UnevaluatedVariable(use)
        result = run_body(frame)
        return result if flat else Optional(present=True, value=result)

    def run(frame: EvaluationFrame) -> Any:
        value = run_source(frame)
        if type(value) is not Optional:
            raise no_overload(value)
        if not value.present:
            frame.cost += 1
            return NONE
        frame.cost += cost
        return evaluate(frame)

    return CompiledPart(run=run, cost=source.cost + 1)


def compile_sort(node: typed_ast.Sort, source: CompiledPart, key: CompiledPart, work_per_round: int) -> CompiledPart:
    """Compile sortBy."""
    run_source, run_key, slot, strict = source.run, key.run, node.slot, node.strict
    step = key.cost + _APPEND + (0 if key.constant else LIST_COST)

    def run(frame: EvaluationFrame) -> Any:
        values = run_source(frame)
        keys = []
        failure: str | None = None
        for value in _elements(values):
            frame.cost += step
            frame.spend(work_per_round)
            frame.slots[slot] = value
            try:
                keys.append(run_key(frame))
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

    return CompiledPart(run=run, cost=source.cost + _SORT)
