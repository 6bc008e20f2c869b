"""Functions in native code, whose time depends on their arguments: the worst case is charged before they run."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dra_extender.cel.cost import EvaluationFrame


class NativeFunction(msgspec.Struct, frozen=True):
    """A native function and its worst case.

    Attributes:
        name: What a refusal names, unique among all native functions.
        function: The function itself, without a frame. It may raise CelRuntimeError.
        work: From the same arguments to units of work (UNIT_NANOSECONDS each), at least twice what was measured at worst.
            It takes constant time itself.
    """

    name: str
    function: Callable[..., Any]
    work: Callable[..., int]

    def call(self, frame: EvaluationFrame, *arguments: Any) -> Any:
        """Charge the worst case, then run; a call that exceeds a limit is not made."""
        work = self.work(*arguments)
        if work:
            frame.begin_call(self.name, work)
        return self.function(*arguments)

    def with_arity(self, count: int) -> Callable[..., Any]:
        """Return `call` for a fixed number of arguments, which is faster for one and two."""
        if count == 1:
            return _unary(self.name, self.function, self.work)
        if count == _PAIR:
            return _binary(self.name, self.function, self.work)
        return self.call


_PAIR: Final = 2


def _unary(
    name: str, function: Callable[[Any], Any], work: Callable[[Any], int]
) -> Callable[[EvaluationFrame, Any], Any]:
    def call(frame: EvaluationFrame, value: Any) -> Any:
        units = work(value)
        if units:
            frame.begin_call(name, units)
        return function(value)

    return call


def _binary(
    name: str, function: Callable[[Any, Any], Any], work: Callable[[Any, Any], int]
) -> Callable[[EvaluationFrame, Any, Any], Any]:
    def call(frame: EvaluationFrame, left: Any, right: Any) -> Any:
        units = work(left, right)
        if units:
            frame.begin_call(name, units)
        return function(left, right)

    return call
