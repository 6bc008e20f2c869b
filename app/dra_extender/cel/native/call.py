"""Functions in native code, whose time depends on their arguments: the worst case is charged before they run."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dra_extender.cel.cost import EvaluationFrame

TEXT: Final = "text"
BYTES: Final = "bytes"
LIST: Final = "list"
INDEX: Final = "index"
ANY: Final = "any"


class NativeFunction(msgspec.Struct, frozen=True):
    """A native function and its worst case.

    Attributes:
        name: What a refusal names, unique among all native functions.
        takes: The kinds of the arguments of `run`: TEXT, BYTES, LIST, INDEX, ANY, or the name of a CEL type.
        run: The function itself, without a frame. It may raise CelRuntimeError.
        work: From the same arguments to units of work (UNIT_NANOSECONDS each), at least twice what was measured at worst.
            It takes constant time itself.
    """

    name: str
    takes: tuple[str, ...]
    run: Callable[..., Any]
    work: Callable[..., int]

    def call(self, frame: EvaluationFrame, *arguments: Any) -> Any:
        """Charge the worst case, then run; a call that exceeds a limit is not made."""
        work = self.work(*arguments)
        if work:
            frame.begin_call(self.name, work)
        return self.run(*arguments)

    def with_arity(self, count: int) -> Callable[..., Any]:
        """Return `call` for a fixed number of arguments, which is faster for one and two."""
        if count == 1:
            return _unary(self.name, self.run, self.work)
        if count == _PAIR:
            return _binary(self.name, self.run, self.work)
        return self.call


_PAIR: Final = 2


def _unary(name: str, run: Callable[[Any], Any], work: Callable[[Any], int]) -> Callable[[EvaluationFrame, Any], Any]:
    def call(frame: EvaluationFrame, value: Any) -> Any:
        units = work(value)
        if units:
            frame.begin_call(name, units)
        return run(value)

    return call


def _binary(
    name: str, run: Callable[[Any, Any], Any], work: Callable[[Any, Any], int]
) -> Callable[[EvaluationFrame, Any, Any], Any]:
    def call(frame: EvaluationFrame, one: Any, other: Any) -> Any:
        units = work(one, other)
        if units:
            frame.begin_call(name, units)
        return run(one, other)

    return call
