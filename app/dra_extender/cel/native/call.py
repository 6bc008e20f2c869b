"""Calls into native code, whose time depends on their arguments: what each takes at worst is charged before it runs."""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dra_extender.cel.runtime.cost import CALL_LIMIT, EvaluationFrame

TEXT: Final = "text"
BYTES: Final = "bytes"
LIST: Final = "list"
INDEX: Final = "index"
ANY: Final = "any"


class Native(msgspec.Struct, frozen=True):
    """A call and its worst case.

    Attributes:
        name: What a refusal names, unique among all entries.
        takes: The kinds of the arguments of `run`, each TEXT, BYTES, LIST, INDEX or ANY.
        run: The call itself, without a frame. It may raise CelRuntimeError.
        work: From the same arguments to units of work (UNIT_NANOSECONDS each), at least twice what was measured at worst.
            It takes constant time itself.
    """

    name: str
    takes: tuple[str, ...]
    run: Callable[..., Any]
    work: Callable[..., int]

    def __call__(self, frame: EvaluationFrame, *arguments: Any) -> Any:
        """Charge the worst case, then run.

        Raises:
            CelCostError: It takes longer than one call may, or the evaluation has not that much left; nothing was run.
        """
        work = self.work(*arguments)
        if work:
            frame.begin_call(self.name, work)
        return self.run(*arguments)

    def bound(self, count: int) -> Callable[..., Any]:
        """The same as calling the entry with so many arguments, but faster."""
        if count == 1:
            return _bound_unary(self.name, self.run, self.work)
        if count == _PAIR:
            return _bound_binary(self.name, self.run, self.work)
        return self.__call__


_PAIR: Final = 2


def _bound_unary(
    name: str, run: Callable[[Any], Any], work: Callable[[Any], int]
) -> Callable[[EvaluationFrame, Any], Any]:
    def call(frame: EvaluationFrame, value: Any) -> Any:
        units = work(value)
        if units:
            if units > CALL_LIMIT:
                frame.begin_call(name, units)
            else:
                frame.spend(units)
        return run(value)

    return call


def _bound_binary(
    name: str, run: Callable[[Any, Any], Any], work: Callable[[Any, Any], int]
) -> Callable[[EvaluationFrame, Any, Any], Any]:
    def call(frame: EvaluationFrame, one: Any, other: Any) -> Any:
        units = work(one, other)
        if units:
            if units > CALL_LIMIT:
                frame.begin_call(name, units)
            else:
                frame.spend(units)
        return run(one, other)

    return call
