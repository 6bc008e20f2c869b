"""What an evaluation spends: upstream's cost units, and units of work, which bound the time that cost units do not.

The compiler sums constant costs, which are charged when a block of the expression is entered. Costs that depend on values are
charged when the values are known. Each call counts as one unit, so `extra` functions return the cost minus one.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec

from dra_extender.cel.errors import CelCostError, CelDeadlineError
from dra_extender.cel.values.values import CONTAINERS, LISTS, NUMBERS, size_of

COST_LIMIT: Final = 1_000_000
"""Most cost units that one evaluation may spend, as in the API (CELSelectorExpressionMaxCost)."""
WORK_LIMIT: Final = 1_500_000
"""Most units of work in one evaluation: rounds of loops, elements copied, compared or visited, and native calls."""
UNIT_NANOSECONDS: Final = 40
"""The time of a unit of work; native calls are charged at least twice their measured worst case."""
CALL_LIMIT: Final = 125_000
"""Most units of work of a single native call, which nothing can interrupt: 5 ms."""
MAX_TEXT: Final = 500_000
"""Longest string or byte string that an evaluation may build; characters beyond ASCII count for four."""
MAX_ELEMENTS: Final = 1_000_000
"""Longest list that an evaluation may build."""

LIST_COST: Final = 10
MAP_COST: Final = 30
_CHARACTERS_PER_WORK: Final = 8
ROUND_WORK: Final = 4
"""The work of a round of a loop, without what happens in it."""
POLL_EVERY: Final = 100 * ROUND_WORK
"""Work between two checks of limits and deadline."""
COMPARISON_WORK: Final = 24
"""The work of comparing, showing or finding one element."""
FAILURE_WORK: Final = 48
"""The work of a failure that does not end the evaluation."""

# The work of running a part of an expression once, without its parts. A loop charges it for each round, before the round.
VARIABLE_WORK: Final = 1
LAZY_WORK: Final = 4
"""The work of a variable that is evaluated on first use, or of binding one."""
PATH_WORK: Final = 2
"""The work of a selection by constant names from `device`."""
SELECTION_WORK: Final = 4
"""The work of a selection by name."""
LOOKUP_WORK: Final = 18
"""The work of an index, a test of presence or an optional selection."""
TERM_WORK: Final = 2
"""The work of a term of `&&` or `||`."""
BRANCH_WORK: Final = 3
LITERAL_WORK: Final = 4
"""The work of a list or map literal without elements."""
ELEMENT_WORK: Final = 3
ENTRY_WORK: Final = 12
"""The work of adding an entry to a map."""
EQUALITY_WORK: Final = 22
SCALAR_EQUALITY_WORK: Final = 6
"""The work of `==` of two numbers, or of a value and a constant of its type."""
MEMBERSHIP_WORK: Final = 6
CALL_WORK: Final = 2
"""The work of a call, without its implementation."""
CHARGED_CALL_WORK: Final = 8
"""The additional work of a call that is charged by its arguments."""
FORMULA_WORK: Final = 4
"""The work of a cost formula, for each argument."""
DISPATCH_WORK: Final = 8
"""The additional work of a call whose overload run-time types choose."""
PYTHON_WORK: Final = 12
"""The work of an implementation in Python, unless its declaration says another."""
METERED_WORK: Final = 16
"""The work of an implementation that charges for sizes, without what it charges."""
LOOP_WORK: Final = 6
"""The work of a loop without its rounds."""
KEY_WORK: Final = 5
"""The additional work of a round over a map."""
SEARCH_WORK: Final = 14
"""The work of looking whether an overload fits run-time types."""

Deadline = Callable[[], bool]


class EvaluationFrame(msgspec.Struct):
    """The state of one evaluation.

    Attributes:
        device: The prepared device.
        cost: The cost units spent so far.
        slots: The values of variables.
        deadline: Asked every `POLL_EVERY` units of work.
        owner: The namespace that the cache charges for regular expressions compiled meanwhile.
        work: The units of work spent so far.
        next_poll: The work at which limits and deadline are checked next.
        same: Pairs of containers (by identity) that the current comparison has found equal; None outside of a comparison.
        budget: The budget of the call, if there is one.
        charged: The computed pattern whose compilation was charged last.
    """

    device: Any
    cost: int
    slots: Any
    deadline: Deadline | None = None
    owner: str = ""
    work: int = 0
    next_poll: int = POLL_EVERY
    same: set[tuple[int, int]] | None = None
    budget: Any = None
    charged: str | None = None

    def spend(self, elements: int) -> None:
        """Charge elements before they are copied or compared; checks limits and deadline if that is due."""
        self.work = work = self.work + elements
        if work >= self.next_poll:
            self.check()

    def check(self) -> None:
        """Check limits and deadline; due when `work` has reached `next_poll`."""
        if self.cost > COST_LIMIT:
            raise over_cost()
        if self.work > WORK_LIMIT:
            raise over_work()
        self.next_poll = self.work + POLL_EVERY
        if self.deadline is not None and self.deadline():
            raise CelDeadlineError("the evaluation was stopped: its time is up")

    def begin_call(self, name: str, work: int) -> None:
        """Charge a native call before it runs, because nothing can interrupt it."""
        if work > CALL_LIMIT:
            raise CelCostError(
                f"the evaluation was stopped: one call of {name} takes {work} units of work, at most {CALL_LIMIT} are accepted"
            )
        self.work = spent = self.work + work
        if spent >= self.next_poll:
            self.check()

    def build_text(self, length: int, *, plain: bool = True) -> None:
        """Charge a string before it is built; without `plain` (ASCII), a character counts as four bytes."""
        size = length if plain else 4 * length
        if size > MAX_TEXT:
            self.require_text(length, plain=plain)
        self.spend(size // _CHARACTERS_PER_WORK)

    def require_text(self, length: int, *, plain: bool = True) -> None:
        """Refuse a string that would become too long, without charging it."""
        if (length if plain else 4 * length) > MAX_TEXT:
            raise CelCostError(f"the evaluation was stopped: it builds a string of more than {MAX_TEXT} bytes")

    def afford(self, cost: int) -> None:
        """Refuse a value before it is built if charging its cost would exceed the limit."""
        if self.cost + cost > COST_LIMIT:
            raise over_cost()

    def build_list(self, length: int) -> None:
        """Charge a list of this length before it is built."""
        self.require_list(length)
        self.spend(length)

    def require_list(self, length: int) -> None:
        """Refuse a list that would become too long, without charging it."""
        if length > MAX_ELEMENTS:
            raise CelCostError(f"the evaluation was stopped: it builds a list of more than {MAX_ELEMENTS} elements")


def over_cost() -> CelCostError:
    return CelCostError(f"operation cancelled: actual cost limit exceeded ({COST_LIMIT} units)")


def over_work() -> CelCostError:
    return CelCostError(f"operation cancelled: the evaluation visits more than {WORK_LIMIT} elements")


def tenth(size: int) -> int:
    """Return the cost of traversing a string: a tenth of a unit per character, rounded up."""
    return (size + 9) // 10


Extra = Callable[[EvaluationFrame, tuple[Any, ...], Any], int]
"""From a call's arguments and result to its cost above one unit; long computations of it charge the frame."""


def first_traversed(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    return tenth(size_of(arguments[0])) - 1


def first_traversed_twice(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of reading the first argument and writing as much."""
    return -(-size_of(arguments[0]) * 2 // 10) - 1


def second_traversed(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    return tenth(size_of(arguments[1])) - 1


def result_traversed_twice(_: EvaluationFrame, __: tuple[Any, ...], result: Any) -> int:
    """Return the cost of writing the result."""
    return -(-size_of(result) * 2 // 10) - 1


def both_traversed(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of copying two strings into one."""
    return tenth(size_of(arguments[0]) + size_of(arguments[1])) - 1


def shorter_traversed(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of comparing up to the end of the shorter argument."""
    return tenth(min(size_of(arguments[0]), size_of(arguments[1]))) - 1


def substring_searched(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of looking for one string in another."""
    return tenth(size_of(arguments[0])) * tenth(size_of(arguments[1])) - 1


def pattern_searched(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of running a regular expression over a string."""
    return tenth(1 + size_of(arguments[0])) * -(-size_of(arguments[1]) // 4) - 1


def second_size(_: EvaluationFrame, arguments: tuple[Any, ...], __: Any) -> int:
    """Return the cost of comparing with each element of the second argument."""
    return size_of(arguments[1]) - 1


def elements_traversed(frame: EvaluationFrame, arguments: tuple[Any, ...], _: Any) -> int:
    """Return the cost of visiting every leaf of the first argument."""
    value = arguments[0]
    if type(value) is str and value.isascii():
        return len(value) // 10 - 1
    if type(value) in LISTS and len(value) <= _FEW and _PLAIN.issuperset(map(type, value)):
        return len(value) - 1
    return min(_leaves(frame, value, {}), _MAX_LEAVES) - 1


_MAX_LEAVES: Final = COST_LIMIT + 2
_PLAIN: Final = NUMBERS | {bool}
_FEW: Final = 16
PIECE: Final = 10_000
"""Elements or characters that are processed between two checks of limits and deadline."""


def _leaves(frame: EvaluationFrame, value: Any, counts: dict[int, int]) -> int:
    """Count leaves, strings by tenths of their UTF-8 length; a value that occurs many times is counted once and added each time."""
    kind = type(value)
    if kind is bytes or (kind is str and value.isascii()):
        return len(value) // 10
    if kind is not str and kind not in CONTAINERS:
        return 1
    count = counts.get(id(value))
    if count is None and kind is str:
        frame.spend(len(value) // 7)
        count = len(value.encode(errors="surrogatepass")) // 10
    elif count is None:
        items = value if kind in LISTS else [part for entry in value.items() for part in entry]
        count = 0
        for start in range(0, len(items), PIECE):
            count += _leaves_of_piece(frame, items[start : start + PIECE], counts)
    counts[id(value)] = count
    return count


def _leaves_of_piece(frame: EvaluationFrame, items: Any, counts: dict[int, int]) -> int:
    frame.spend(len(items) if len(items) > _FEW else 0)
    kinds = set(map(type, items))
    if kinds <= _PLAIN:
        return len(items)
    frame.spend(_LEAF_WORK * len(items))
    return sum(_leaves(frame, item, counts) for item in items)


_LEAF_WORK: Final = 8
