"""The closures of calls: evaluate the arguments, choose the overload, run it, and charge what depends on values."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dra_extender.cel.compiler.code import FAILED, Run, evaluated
from dra_extender.cel.runtime.cost import EvaluationFrame, Extra
from dra_extender.cel.runtime.values import LISTS, MAPS, no_overload
from dra_extender.cel.support.errors import CelCostError, CelRuntimeError
from dra_extender.cel.types.declarations import Overload, accepts

_CONTAINERS: Final = LISTS | MAPS
_PAIR: Final = 2

FrameFunction = Callable[..., Any]


def _evaluate_other(frame: EvaluationFrame, other: Run, error: CelRuntimeError) -> CelRuntimeError:
    """Evaluate the second of two arguments after the first failed, as upstream does, and charge it; the error to raise."""
    if not isinstance(error, CelCostError):
        evaluated(frame, other)
    return error


def static_call(
    single: Overload, runs: tuple[Run, ...], extra: Extra | None, costs: tuple[int, ...], *, stops_at_failure: bool
) -> Run:
    """Run the one overload that fits the static types."""
    plain = extra is None and not single.charges
    if plain and len(runs) == 1:
        return _unary(single.run, *runs)
    if plain and len(runs) == _PAIR:
        return _binary(single.run, *runs)
    chosen = with_frame(single)
    if extra is not None and len(runs) == 1:
        return _charged_unary(chosen, runs[0], extra)
    if extra is not None and len(runs) == _PAIR:
        return _charged_binary(chosen, runs, extra, costs, stops_at_failure=stops_at_failure)
    return _charged(lambda _: chosen, runs, extra, costs, stops_at_failure=stops_at_failure)


def _unary(function: FrameFunction, argument: Run) -> Run:
    return lambda frame: function(argument(frame))


def _binary(function: FrameFunction, first: Run, second: Run) -> Run:
    def run(frame: EvaluationFrame) -> Any:
        try:
            one = first(frame)
        except CelRuntimeError as error:
            raise _evaluate_other(frame, second, error) from None
        return function(one, second(frame))

    return run


def call_with_constant(function: FrameFunction, first: Run, other: Any) -> Run:
    """Run a function whose second argument is constant."""
    return lambda frame: function(first(frame), other)


def framed_call_with_constant(function: FrameFunction, first: Run, other: Any) -> Run:
    """As `call_with_constant`, for a function that takes the frame, too."""
    return lambda frame: function(frame, first(frame), other)


def _ignoring_frame(run: FrameFunction, count: int) -> FrameFunction:
    """An implementation with a first parameter that it ignores; a fixed number of arguments is faster to pass on."""
    if count == 1:
        return lambda _, value: run(value)
    if count == _PAIR:
        return lambda _, one, other: run(one, other)
    return lambda _, *values: run(*values)


def with_frame(item: Overload) -> FrameFunction:
    """The implementation of an overload with the frame as its first parameter; it charges the work of a call before it runs."""
    run, work = item.run, item.work
    if item.native is not None:
        return item.native.with_arity(len(item.parameters))
    taking_frame: FrameFunction = run if item.metered else _ignoring_frame(run, len(item.parameters))
    if not work:
        return taking_frame

    def charging(frame: EvaluationFrame, *values: Any) -> Any:
        frame.spend(work)
        return taking_frame(frame, *values)

    return charging


def _charged_unary(chosen: FrameFunction, argument: Run, extra: Extra) -> Run:
    """As `_charged`, for a single argument."""

    def run(frame: EvaluationFrame) -> Any:
        try:
            value = argument(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                frame.cost += extra(frame, (FAILED,), FAILED)
            raise
        result = None
        try:
            result = chosen(frame, value)
        finally:
            frame.cost += extra(frame, (value,), result)
        return result

    return run


def _charged_binary(
    chosen: FrameFunction, runs: tuple[Run, ...], extra: Extra, costs: tuple[int, ...], *, stops_at_failure: bool
) -> Run:
    """As `_charged`, for two arguments."""
    first, second = runs

    def run(frame: EvaluationFrame) -> Any:
        values: list[Any] = []
        try:
            one = first(frame)
            values = [one]
            other = second(frame)
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                _charge_failed(frame, runs, values, extra, costs, stops_at_failure=stops_at_failure)
            raise
        result = None
        try:
            result = chosen(frame, one, other)
        finally:
            frame.cost += extra(frame, (one, other), result)
        return result

    return run


def _charged(
    choose: Callable[[list[Any]], FrameFunction],
    runs: tuple[Run, ...],
    extra: Extra | None,
    costs: tuple[int, ...],
    *,
    stops_at_failure: bool,
) -> Run:
    """Evaluate arguments, choose the implementation, run it, and charge what depends on values even if it fails."""

    def run(frame: EvaluationFrame) -> Any:
        values: list[Any] = []
        try:
            for argument in runs:
                values.append(argument(frame))  # noqa: PERF401 - what was evaluated before a failure has to be known
        except CelRuntimeError as error:
            if not isinstance(error, CelCostError):
                _charge_failed(frame, runs, values, extra, costs, stops_at_failure=stops_at_failure)
            raise
        if extra is None:
            return choose(values)(frame, *values)
        result = None
        try:
            result = choose(values)(frame, *values)
        finally:
            frame.cost += extra(frame, tuple(values), result)
        return result

    return run


def _charge_failed(
    frame: EvaluationFrame,
    runs: tuple[Run, ...],
    values: list[Any],
    extra: Extra | None,
    costs: tuple[int, ...],
    *,
    stops_at_failure: bool,
) -> None:
    """Charge a call with a failed argument: upstream evaluates both of two arguments, and stops at the first failure of more.

    With `stops_at_failure`, upstream stops at the first failure of two arguments, too.
    """
    failed = len(values)
    if (stops_at_failure or len(runs) > _PAIR) and failed + 1 < len(runs):
        frame.cost -= 1 + sum(costs[failed + 1 :])
        return
    values.append(FAILED)
    if failed + 1 < len(runs):
        values.append(evaluated(frame, runs[-1]))
    if extra is not None:
        frame.cost += extra(frame, tuple(values), FAILED)


def dynamic_call(
    overloads: tuple[Overload, ...],
    runs: tuple[Run, ...],
    extra: Extra | None,
    costs: tuple[int, ...],
    *,
    stops_at_failure: bool,
) -> Run:
    """Run the overload that fits the run-time types of the arguments; the choice is cached by these types."""
    by_types: dict[tuple[type, ...], FrameFunction] = {}

    def choose(values: list[Any]) -> FrameFunction:
        kinds = tuple(map(type, values))
        found = by_types.get(kinds)
        if found is None:
            found = find_overload(overloads, values)
            if _CONTAINERS.isdisjoint(kinds):
                by_types[kinds] = found
        return found

    if extra is None and len(runs) == _PAIR and not stops_at_failure:
        return _dispatched_pair(overloads, *runs)
    return _charged(choose, runs, extra, costs, stops_at_failure=stops_at_failure)


def _dispatched_pair(overloads: tuple[Overload, ...], first: Run, second: Run) -> Run:
    by_types: dict[tuple[type, type], FrameFunction] = {}

    def run(frame: EvaluationFrame) -> Any:
        try:
            one = first(frame)
        except CelRuntimeError as error:
            raise _evaluate_other(frame, second, error) from None
        other = second(frame)
        kinds = (type(one), type(other))
        found = by_types.get(kinds)
        if found is None:
            found = find_overload(overloads, (one, other))
            if _CONTAINERS.isdisjoint(kinds):
                by_types[kinds] = found
        return found(frame, one, other)

    return run


def find_overload(overloads: tuple[Overload, ...], values: Sequence[Any]) -> FrameFunction:
    """The first overload that takes these values.

    Raises:
        CelRuntimeError: None does.
    """
    for item in overloads:
        if item.unguarded or all(
            accepts(parameter, value) for parameter, value in zip(item.parameters, values, strict=True)
        ):
            return with_frame(item)
    raise no_overload(*values)
