"""Selector verdicts: each list is evaluated once per device of a published slice; its verdicts live as long as the slice.

Evaluation is lazy and in the order of the search, because a selector that fails is an error only if the search evaluates it.
"""

import weakref
from collections.abc import Callable, Sequence
from sys import getsizeof
from typing import Final, TypedDict

from dra_extender.allocator.state.reasons import Code
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import DeviceActivation, prepare_device
from dra_extender.cel.errors import CelBudgetError, CelCompileError, CelDeadlineError, CelRuntimeError, quoted
from dra_extender.cel.explain.nearness import may_hold
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.program import Program, ProgramCache
from dra_extender.model.device import Device
from dra_extender.model.resource_slice import ResourceSlice

Deadline = Callable[[], bool]
"""Returns True once the time is up; a `Budget` also limits and counts the price of the evaluations."""


VERDICT_BYTES: Final = 20 * 1024 * 1024
_LARGEST: Final = 2
_ROW_BYTES: Final = 420
_DRIVER_BYTES: Final = 200
_ERROR_BYTES: Final = 250
_FAILURE_BYTES: Final = 2_000


class EvaluationLimits(TypedDict, total=False):
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
    slice_ref: "_SliceRef"

    def __init__(self, selectors: "SelectorList", size: int) -> None:
        self._selectors = selectors
        self._verdicts = bytearray(size)
        # Not the exceptions: their tracebacks hold the slice, which would never be dropped.
        self._errors: dict[int, tuple[Code, str]] | None = None

    @property
    def size(self) -> int:
        """The bytes that it takes, errors included."""
        errors = () if self._errors is None else self._errors.values()
        return _ROW_BYTES + len(self._verdicts) + sum(_error_bytes(message) for _, message in errors)

    def matches(self, published: ResourceSlice, position: int, deadline: Deadline | None) -> bool:
        """Return whether all selectors hold for device `position` of the slice this row belongs to.

        A selector that fails is a SelectorError; after a SelectionTimeoutError the verdict stays unknown.
        """
        verdict = self._verdicts[position]
        if verdict == _UNKNOWN:
            try:
                verdict = _YES if self._selectors.evaluate(published, position, deadline) else _NO
            except SelectorError as problem:
                if self._errors is None:
                    self._errors = {}
                message = str(problem)
                self._errors[position] = problem.code, message
                self._selectors.record_growth(_error_bytes(message))
                verdict = _FAILED
            self._verdicts[position] = verdict
        if verdict == _FAILED:
            raise SelectorError(*(self._errors or {})[position])
        return verdict == _YES


def _error_bytes(message: str) -> int:
    return _ERROR_BYTES + getsizeof(message)


class _SliceRef(weakref.ref[ResourceSlice]):
    """A reference to a slice that drops the slice's row from a selector list when the slice is gone."""

    __slots__ = ("key", "selectors")
    key: int
    selectors: "weakref.ref[SelectorList]"


def _slice_lost(reference: weakref.ref[ResourceSlice]) -> None:
    assert isinstance(reference, _SliceRef)  # noqa: S101 - for the type checker
    selectors = reference.selectors()
    if selectors is not None:
        selectors.drop_slice(reference)


class SelectorList:
    """The selectors of a class followed by those of a request, compiled; the first that is false decides.

    `programs` has the compiled expressions, or the error of one that does not compile.  A list that `is_empty` selects every device
    and reads no attribute.  `own_size`: the bytes of its expressions and programs, which other lists may share.
    """

    __slots__ = (
        "__weakref__",
        "_drivers",
        "_on_growth",
        "_rows",
        "_rows_bytes",
        "expressions",
        "is_empty",
        "own_size",
        "owner",
        "programs",
    )

    def __init__(
        self,
        expressions: Sequence[str],
        programs: ProgramCache,
        budget: Budget | None = None,
        owner: str = "",
        on_growth: Callable[["SelectorList"], None] | None = None,
    ) -> None:
        """Compile each expression; one that does not compile is an error once the search needs it.

        A spent budget is a CelBudgetError; `programs` keeps what was compiled before.  `on_growth` is called whenever the list
        keeps more bytes.
        """
        self.expressions = tuple(expressions)
        self.programs = tuple(compiled(programs, expression, budget, owner) for expression in self.expressions)
        self.is_empty = not self.programs
        self._rows: dict[int, VerdictRow] = {}
        self._drivers: dict[str, bool] = {}
        self._rows_bytes = 0
        self.own_size = sum(map(getsizeof, self.expressions)) + sum(map(_size, self.programs))
        self._on_growth = on_growth
        self.owner = owner

    def record_growth(self, size: int) -> None:
        """Count further bytes of verdicts."""
        self._rows_bytes += size
        if self._on_growth is not None:
            self._on_growth(self)

    def forget(self) -> None:
        self._rows.clear()
        self._drivers.clear()
        self._rows_bytes = 0

    @property
    def size(self) -> int:
        """The bytes that it takes, verdicts included."""
        return self.own_size + self._rows_bytes

    def may_select(self, driver: str) -> bool:
        """Return whether devices of the driver can be selected, as far as that is known without devices."""
        selectable = self._drivers.get(driver)
        if selectable is None:
            programs = (program for program in self.programs if isinstance(program, Program))
            selectable = all(may_hold(program.expression, driver, program.emulate) for program in programs)
            self._drivers[driver] = selectable
            self.record_growth(_DRIVER_BYTES)
        return selectable

    def row(self, published: ResourceSlice) -> VerdictRow:
        """Return the verdicts for one slice object; they live as long as that object."""
        key = id(published)
        row = self._rows.get(key)
        if row is None:
            row = VerdictRow(self, len(published.devices))
            row.slice_ref = reference = _SliceRef(published, _slice_lost)
            reference.key, reference.selectors = key, weakref.ref(self)
            self._rows[key] = row
            self.record_growth(row.size)
        return row

    def drop_slice(self, reference: "_SliceRef") -> None:
        row = self._rows.get(reference.key)
        if row is not None and row.slice_ref is reference:
            del self._rows[reference.key]
            self._rows_bytes -= row.size

    def evaluate(
        self,
        published: ResourceSlice,
        position: int,
        deadline: Deadline | None,
        activation: DeviceActivation | None = None,
    ) -> bool:
        """Evaluate the selectors on one device, and keep no verdict; `activation` is the device, if it is prepared already."""
        device = published.devices[position]
        for index, program in enumerate(self.programs):
            if isinstance(program, CelCompileError):
                raise SelectorError(Code.SELECTOR_INVALID, f"{quoted(self.expressions[index])}: {program}")
            if activation is None:
                activation = activation_of(published, device)
            try:
                if not program.matches(activation, **evaluation_limits(deadline)):
                    return False
            except (CelBudgetError, CelDeadlineError) as problem:
                raise SelectionTimeoutError from problem
            except CelRuntimeError as problem:
                message = (
                    f"{quoted(self.expressions[index])} on {published.driver}/{published.pool}/{device.name}: {problem}"
                )
                raise SelectorError(Code.SELECTOR_FAILED, message) from problem
        return True


def _size(program: object) -> int:
    return program.size if isinstance(program, Program) else _FAILURE_BYTES


class SelectorVerdicts:
    """Selector lists with their verdicts, shared between the demands of all pods.

    Verdicts live as long as the slice objects that they are about.  Lists and verdicts are bounded in bytes; the lists of the
    namespace that holds the most are evicted first, and lose their verdicts.
    """

    def __init__(self, max_bytes: int = VERDICT_BYTES) -> None:
        """Start empty."""
        self._lists: FairCache[tuple[str, ...], SelectorList] = FairCache(
            max_bytes, parts=_LARGEST, on_evict=lambda _, evicted: evicted.forget()
        )

    @property
    def bytes_kept(self) -> int:
        """Return an estimate of the bytes that the selector lists occupy."""
        return self._lists.bytes_kept

    def selector_list(
        self, expressions: Sequence[str], programs: ProgramCache, budget: Budget | None = None, owner: str = ""
    ) -> SelectorList:
        """Return the one selector list for these expressions; compiling them is charged to `budget` and kept for `owner`."""
        key = tuple(expressions)
        selectors = self._lists.get(key)
        if selectors is None:
            selectors = SelectorList(key, programs, budget, owner, self._count)
            self._lists.put(key, selectors, selectors.size, owner)
        return selectors

    def _count(self, grown: SelectorList) -> None:
        """Count the bytes of a list; one that was evicted and is in use enters again, unless its expressions have a newer list."""
        key = grown.expressions
        cached = self._lists.get(key)
        if cached is grown:
            self._lists.resize(key, grown.size)
        elif cached is not None or not self._lists.put(key, grown, grown.size, grown.owner):
            grown.forget()


def evaluation_limits(deadline: Deadline | None) -> EvaluationLimits:
    """Return the limits of an evaluation, as arguments of `Program.matches`: a call's budget is its deadline, too."""
    return {"budget": deadline} if isinstance(deadline, Budget) else {"deadline": deadline}


def compiled(
    programs: ProgramCache, expression: str, budget: Budget | None = None, owner: str = "", *, derived: bool = False
) -> Program | CelCompileError:
    """Return the program of an expression, or the reason why it does not compile; a spent budget is a CelBudgetError."""
    try:
        return programs.compile(expression, derived=derived, budget=budget, owner=owner)
    except CelCompileError as problem:
        return problem.with_traceback(None)


def activation_of(published: ResourceSlice, device: Device) -> DeviceActivation:
    """Return a device as expressions see it."""
    return prepare_device(
        published.driver,
        dict(device.attributes),
        {name: capacity.text for name, capacity in device.capacity},
        device.allow_multiple_allocations,
    )
