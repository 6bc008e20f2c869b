"""Selector verdicts: each list is evaluated once per device of a published slice, and remembered while the slice lives.

Evaluation stays lazy and in the order of the search, because a selector that fails is an error only if the search gets there.
"""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Final, TypedDict

from app.cel import (
    Budget,
    CelBudgetError,
    CelCompileError,
    CelDeadlineError,
    CelRuntimeError,
    DeviceActivation,
    Program,
    ProgramCache,
    prepare_device,
)
from app.cel.errors import quoted
from app.model.device import Device
from app.model.rejection import Code
from app.model.resource_slice import ResourceSlice

Deadline = Callable[[], bool]
"""Tells whether the time is up; a `Budget` limits and counts what the selectors cost as well."""


class Limits(TypedDict, total=False):
    """The limits of an evaluation by the name of the argument."""

    deadline: Deadline | None
    budget: Budget


_UNKNOWN: Final = 0
_NO: Final = 1
_YES: Final = 2
_FAILED: Final = 3


class SelectorError(Exception):
    """A selector did not compile or failed on a device; `code` tells which, the message names selector and device."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


class SelectionTimeoutError(Exception):
    """The deadline passed while a selector was running."""


class VerdictRow:
    """Verdicts of one selector list over the devices of one slice."""

    __slots__ = ("_errors", "_selectors", "_verdicts", "slice_ref")

    def __init__(self, selectors: "SelectorList", size: int) -> None:
        self._selectors = selectors
        self._verdicts = bytearray(size)
        self._errors: dict[int, SelectorError] | None = None
        self.slice_ref: weakref.ref[ResourceSlice] | None = None

    def matches(self, published: ResourceSlice, position: int, deadline: Deadline | None) -> bool:
        """Whether all selectors hold for device `position` of the slice this row belongs to.

        Raises:
            SelectorError: a selector did not compile or failed on this device.
            SelectionTimeoutError: the deadline passed; nothing is remembered.
        """
        verdict = self._verdicts[position]
        if verdict == _UNKNOWN:
            try:
                verdict = _YES if self._selectors.evaluate(published, position, deadline) else _NO
            except SelectorError as problem:
                if self._errors is None:
                    self._errors = {}
                self._errors[position] = problem
                verdict = _FAILED
            self._verdicts[position] = verdict
        if verdict == _FAILED:
            found = (self._errors or {})[position]
            raise SelectorError(found.code, str(found))
        return verdict == _YES


class SelectorList:
    """The selectors of a class followed by those of a request, compiled; the first that is false decides."""

    __slots__ = ("__weakref__", "_programs", "_rows", "expressions")

    def __init__(
        self, expressions: Sequence[str], programs: ProgramCache, budget: Budget | None = None, owner: str = ""
    ) -> None:
        """Compile each expression; one that does not compile is reported when the search needs it.

        Raises:
            CelBudgetError: The budget was spent before everything was compiled; what was is kept in `programs`.
        """
        self.expressions = tuple(expressions)
        self._programs = tuple(compiled(programs, expression, budget, owner) for expression in self.expressions)
        self._rows: dict[int, VerdictRow] = {}

    @property
    def always(self) -> bool:
        """Whether there is no selector, so that every device matches and no attribute is looked at."""
        return not self._programs

    @property
    def programs(self) -> Sequence[Program | CelCompileError]:
        """The compiled expressions, or what is wrong with one."""
        return self._programs

    def row(self, published: ResourceSlice) -> VerdictRow:
        """The verdicts for one slice object; forgotten when nobody uses that object any more."""
        key = id(published)
        row = self._rows.get(key)
        if row is None:
            row = VerdictRow(self, len(published.devices))
            rows = self._rows
            row.slice_ref = weakref.ref(published, lambda _: rows.pop(key, None))
            rows[key] = row
        return row

    def evaluate(self, published: ResourceSlice, position: int, deadline: Deadline | None) -> bool:
        """Evaluate the selectors on one device, without memory.

        Raises:
            SelectorError: a selector did not compile or failed on this device.
            SelectionTimeoutError: the deadline passed.
        """
        device = published.devices[position]
        activation: DeviceActivation | None = None
        for index, program in enumerate(self._programs):
            if isinstance(program, CelCompileError):
                raise SelectorError(Code.SELECTOR_INVALID, f"{quoted(self.expressions[index])}: {program}")
            if activation is None:
                activation = activation_of(published, device)
            try:
                if not program.matches(activation, **within(deadline)):
                    return False
            except (CelBudgetError, CelDeadlineError) as problem:
                raise SelectionTimeoutError from problem
            except CelRuntimeError as problem:
                message = (
                    f"{quoted(self.expressions[index])} on {published.driver}/{published.pool}/{device.name}: {problem}"
                )
                raise SelectorError(Code.SELECTOR_FAILED, message) from problem
        return True


class SelectorVerdicts:
    """Selector lists with their verdicts, shared between the demands of all pods.

    Holds the `max_lists` most recently used lists; verdicts live as long as the slice objects they are about.
    """

    def __init__(self, max_lists: int = 512) -> None:
        self._lists: OrderedDict[tuple[str, ...], SelectorList] = OrderedDict()
        self._max_lists = max_lists

    def of(
        self, expressions: Sequence[str], programs: ProgramCache, budget: Budget | None = None, owner: str = ""
    ) -> SelectorList:
        """The one selector list for these expressions; compiling them is charged to `budget` and kept for `owner`.

        Raises:
            CelBudgetError: The budget was spent before everything was compiled; another call gets further.
        """
        key = tuple(expressions)
        found = self._lists.get(key)
        if found is None:
            found = self._lists[key] = SelectorList(key, programs, budget, owner)
            if len(self._lists) > self._max_lists:
                self._lists.popitem(last=False)
        else:
            self._lists.move_to_end(key)
        return found


def within(deadline: Deadline | None) -> Limits:
    """The limits of an evaluation, as arguments of `Program.matches`: a call's budget is its deadline, too."""
    return {"budget": deadline} if isinstance(deadline, Budget) else {"deadline": deadline}


def compiled(
    programs: ProgramCache, expression: str, budget: Budget | None = None, owner: str = "", *, derived: bool = False
) -> Program | CelCompileError:
    """The program of an expression, or the reason why it does not compile.

    Raises:
        CelBudgetError: The budget was spent before.
    """
    try:
        return programs.compile(expression, derived=derived, budget=budget, owner=owner)
    except CelCompileError as problem:
        return problem


def activation_of(published: ResourceSlice, device: Device) -> DeviceActivation:
    """A device as expressions see it."""
    return prepare_device(
        published.driver,
        dict(device.attributes),
        {name: capacity.text for name, capacity in device.capacity},
        device.allow_multiple_allocations,
    )
