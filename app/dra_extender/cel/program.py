"""Compiled expressions: from a text to a program, from a program and a device to a value, and the cache of programs."""

from collections.abc import Callable
from sys import getsizeof
from types import BuiltinFunctionType, CellType, FunctionType
from typing import Any, Final

import msgspec

from dra_extender.cel.analysis.attributes import read_attributes
from dra_extender.cel.budget import READ_UNITS, REWRITE_UNITS, Budget, CompileMeter
from dra_extender.cel.compiler.code import EvaluatePart
from dra_extender.cel.compiler.compiler import Compiler
from dra_extender.cel.compiler.fast_path import FALLBACK_ERRORS, Evaluate, compile_fast_path
from dra_extender.cel.cost import COST_LIMIT, Deadline, EvaluationFrame, over_cost
from dra_extender.cel.device import Attribute, DeviceActivation, may_be_attribute, to_attribute
from dra_extender.cel.environment import ENVIRONMENTS, LATEST, Release
from dra_extender.cel.errors import CelCompileError, CelCostError, CelRuntimeError
from dra_extender.cel.fair_cache import FairCache
from dra_extender.cel.syntax.ast import SyntaxNode
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.types.checker import Checker
from dra_extender.cel.types.typed_ast import TypedNode
from dra_extender.cel.types.types import BOOL
from dra_extender.cel.values.integers import Uint
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.values import Optional, type_name, unwrapped

_PROGRAM_BYTES: Final = 200
_COSTED_BYTES: Final = 4 * 1024 * 1024
_TOO_DEEP: Final = "the expression is nested too deeply"
_DERIVED: Final = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"


class CostedProgram(msgspec.Struct, frozen=True):
    """An expression compiled with cost accounting.

    `base_cost` is the cost of every evaluation, without what depends on the device, and `slots` the number of variables. The cache
    charges `owner` for the regular expressions.
    """

    evaluate: EvaluatePart
    base_cost: int
    slots: int
    owner: str = ""

    def frame(self, device: DeviceActivation, deadline: Deadline | None) -> EvaluationFrame:
        return EvaluationFrame(device, self.base_cost, [None] * self.slots if self.slots else (), deadline, self.owner)


class Program(msgspec.Struct, frozen=True):
    """A compiled expression: immutable, and shareable between threads and devices.

    Attributes:
        expression: Its text.
        emulate: The Kubernetes release whose libraries it uses.
        costed: The form with cost accounting; None if there is a fast path: it is compiled on first use and cached then.
        fast_path: Evaluates a device without cost accounting; most programs with one need nothing else.
        fast_path_cost: The greatest cost of the expression on any device.
        units: The units that compiling it costs.
        owner: The namespace that the caches charge for the program and its regular expressions; empty for administrators.
        size: The measured bytes of the program, without its expression.
        reads: The attributes, as domain/name, whose values the result can depend on; None if it can depend on any.
    """

    expression: str
    emulate: Release
    costed: CostedProgram | None
    fast_path: Evaluate | None = None
    fast_path_cost: int = 0
    units: int = 0
    owner: str = ""
    size: int = 0
    reads: frozenset[str] | None = None

    def matches(
        self, device: DeviceActivation, *, deadline: Deadline | None = None, budget: Budget | None = None
    ) -> bool:
        """Return whether the device is selected.

        Args:
            device: The prepared device.
            deadline: Called every `POLL_EVERY` units of work; true ends the evaluation.
            budget: The caller's budget for this and other evaluations, which limits the time of this one if there is no deadline.

        Raises:
            CelRuntimeError: The result is no bool, or the evaluation failed; upstream aborts the pod's scheduling then.
            CelCostError: The evaluation exceeded its cost limit or its deadline, or the budget was spent.
        """
        fast = self.fast_path
        if fast is not None and device.defect is None and (budget is None or budget.remaining > 0):
            try:
                value = fast(device)
            except FALLBACK_ERRORS:
                pass
            else:
                if budget is not None:
                    budget.remaining -= self.fast_path_cost
                if value is True or value is False:
                    return value
        value = self._evaluate(device, deadline, budget)[0]
        result = unwrapped(value)
        if result is True or result is False:
            return result
        raise CelRuntimeError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def attribute(
        self, device: DeviceActivation, *, deadline: Deadline | None = None, budget: Budget | None = None
    ) -> Attribute:
        """Return the value as a derived attribute: bool, int, string, version, or a list of one of these.

        Arguments and errors are those of `matches`; a value of another type, or a list that mixes types, is a CelRuntimeError.
        """
        return to_attribute(self._evaluate(device, deadline, budget)[0])

    def evaluate(self, device: DeviceActivation, *, deadline: Deadline | None = None) -> tuple[Any, int]:
        """Return the value of the expression for a device, and the cost units that were spent; errors are those of `matches`."""
        return self._evaluate(device, deadline, None)

    def costed_program(self, budget: Budget | None = None) -> CostedProgram:
        """Return the form with cost accounting; `budget` is charged for compiling it if the cache has none."""
        if self.costed is not None:
            return self.costed
        key = self.expression, self.emulate
        costed = _COSTED.peek(key)
        if costed is None:
            if budget is not None:
                budget.spend(self.units)
            checker, checked, _ = check_expression(*key, CompileMeter(self.expression))
            costed = _compile_costed(self.expression, checker, checked, self.owner)
            _COSTED.put(key, costed, program_size(costed.evaluate) + getsizeof(self.expression), self.owner)
        return costed

    def _evaluate(self, device: DeviceActivation, deadline: Deadline | None, budget: Budget | None) -> tuple[Any, int]:
        """Evaluate with cost accounting, charged to `budget`, whose deadline counts if there is no other."""
        if budget is not None:
            ends = budget.begin()
            deadline = ends if deadline is None else deadline
        if device.defect is not None:
            raise CelRuntimeError(device.defect)
        costed = self.costed or self.costed_program(budget)
        frame = costed.frame(device, deadline)
        if budget is not None:
            budget.watch(frame)
        try:
            value = costed.evaluate(frame)
        except RecursionError:
            raise CelRuntimeError(_TOO_DEEP) from None
        except CelRuntimeError as error:
            # Exceeding the cost limit takes precedence over any other failure.
            if frame.cost > COST_LIMIT and not isinstance(error, CelCostError):
                raise over_cost() from None
            raise
        finally:
            if budget is not None:
                budget.charge(frame)
        if frame.cost > COST_LIMIT:
            raise over_cost()
        return value, frame.cost


_COSTED: Final[FairCache[tuple[str, Release], CostedProgram]] = FairCache(_COSTED_BYTES)
"""The form with cost accounting of programs that have a fast path."""


def compile_expression(
    expression: str,
    *,
    derived: bool = False,
    emulate: Release = LATEST,
    budget: Budget | None = None,
    owner: str = "",
) -> Program:
    """Compile a device selector, or the expression of a derived attribute.

    Args:
        expression: Its text.
        derived: Compile for `Program.attribute` instead of `Program.matches`.
        emulate: The Kubernetes release whose libraries it may use.
        budget: Charged for compiling, which a spent budget does not end: compiling has limits of its own.
        owner: The namespace of the author, or empty for administrators.

    Raises:
        CelCompileError: The expression is not valid, its result can never be of the wanted type, or it exceeds a limit of
            compiling. The error depends only on the text.
    """
    meter = CompileMeter(expression, budget)
    try:
        checker, checked, tree = check_expression(expression, emulate, meter)
        result = checker.final(checked.type)
        if not (may_be_attribute(result) if derived else result in {BOOL, ENVIRONMENTS[emulate].attribute}):
            expected = _DERIVED if derived else "bool or the unknown type"
            raise CelCompileError(f"must evaluate to {expected}, not {result}", expression, tree.offset)
        meter.spend(READ_UNITS * (checker.nodes - checker.constants) + checker.constants)
        reads = read_attributes(tree)
        fast = None if derived else compile_fast_path(checked, owner)
        if fast is not None:
            size = _PROGRAM_BYTES + program_size(fast.evaluate, reads)
            return Program(expression, emulate, None, fast.evaluate, fast.cost, meter.spent, owner, size, reads)
        costed = _compile_costed(expression, checker, checked, owner)
        size = _PROGRAM_BYTES + program_size(costed.evaluate, reads)
        return Program(expression, emulate, costed, units=meter.spent, owner=owner, size=size, reads=reads)
    except RecursionError:
        raise CelCompileError(_TOO_DEEP, expression, 0) from None


def _compile_costed(expression: str, checker: Checker, checked: TypedNode, owner: str) -> CostedProgram:
    code = Compiler(expression, dynamic_dispatch=checker.dynamic_dispatch, owner=owner).compile(checked)
    return CostedProgram(code.evaluate, code.cost, checker.slots, owner)


def check_expression(expression: str, emulate: Release, meter: CompileMeter) -> tuple[Checker, TypedNode, SyntaxNode]:
    """Parse and check an expression; return its checker, its checked tree and its syntax tree."""
    environment = ENVIRONMENTS[emulate]
    tree = parse(expression, meter)
    checker = Checker(expression, environment.functions, environment.device, meter)
    return checker, checker.check(tree), tree


_UNCOUNTED: Final = frozenset({type, bool, type(None), BuiltinFunctionType})
_PLAIN: Final = frozenset({str, bytes, int, float, Uint, Semver})
_SEQUENCES: Final = frozenset({tuple, list, frozenset, set})
_GC_HEADER: Final = 16
_FUNCTION_BYTES: Final = getsizeof(lambda: None) + _GC_HEADER
_CELL_BYTES: Final = getsizeof(CellType()) + _GC_HEADER
_TUPLE_BYTES: Final = getsizeof(())
_PLACE_BYTES: Final = getsizeof((None,)) - _TUPLE_BYTES
_SHARED: Final = frozenset({*range(-5, 257)})


def program_size(*roots: Any) -> int:
    """Return the bytes that go with these functions: closures, cells and values in them, but not what programs share.

    Takes about half a microsecond for each object.
    """
    total = 0
    counted: set[int] = set()
    pending = list(roots)
    while pending:
        item = pending.pop()
        kind = type(item)
        if kind in _UNCOUNTED or id(item) in counted or (kind is int and item in _SHARED):
            continue
        counted.add(id(item))
        if kind is FunctionType:
            closure, defaults = item.__closure__, item.__defaults__
            if closure:
                pending += [part for cell in closure if type(part := cell.cell_contents) not in _UNCOUNTED]
                total += _FUNCTION_BYTES + _TUPLE_BYTES + (_PLACE_BYTES + _CELL_BYTES) * len(closure)
            elif defaults:
                total += _FUNCTION_BYTES
            if defaults:
                pending.append(defaults)
        elif kind in _PLAIN:
            total += getsizeof(item)
        elif kind in _SEQUENCES:
            total += getsizeof(item)
            pending += item
        elif kind is dict:
            total += getsizeof(item)
            pending += (*item.keys(), *item.values())
        elif kind is Optional:
            total += getsizeof(item)
            pending.append(item.value)
    return total


PROGRAM_BYTES: Final = 16 * 1024 * 1024
_CLASS_SHARE: Final = 4
"""The divisor of the bytes for expressions of DeviceClasses."""
_FAILURE_BYTES: Final = 1_000

_Entry = Program | CelCompileError


class ProgramCache:
    """A least-recently-used cache of programs.

    Expressions of DeviceClasses (owner "") have a quarter of the bytes to themselves; namespaces share the rest. A full cache
    evicts programs of the namespace that holds the most bytes.
    """

    def __init__(
        self,
        max_bytes: int = PROGRAM_BYTES,
        *,
        emulate: Release = LATEST,
        rewrite: Callable[[str], str] | None = None,
    ) -> None:
        """Begin empty; programs use the libraries of one release. `rewrite` changes an expression before it is compiled."""
        self._emulate = emulate
        self._rewrite = rewrite
        share = max_bytes // _CLASS_SHARE
        self._class_programs: FairCache[tuple[str, bool], _Entry] = FairCache(share)
        self._namespace_programs: FairCache[tuple[str, bool], _Entry] = FairCache(max_bytes - share)

    def __len__(self) -> int:
        return len(self._class_programs) + len(self._namespace_programs)

    @property
    def bytes_kept(self) -> int:
        """The estimated bytes of all entries."""
        return self._class_programs.bytes_kept + self._namespace_programs.bytes_kept

    def compile(
        self, expression: str, *, derived: bool = False, budget: Budget | None = None, owner: str = ""
    ) -> Program:
        """Return the program of a selector, or of a derived attribute; arguments are those of `compile_expression`.

        `budget` is charged for compiling, a cached program costs nothing. If it was spent before, it is a CelBudgetError. An
        expression that is not valid is a CelCompileError, which is cached, too.
        """
        key = (expression, derived)
        outcome = self._class_programs.get(key) or self._namespace_programs.get(key)
        if outcome is None:
            if budget is not None:
                budget.afford("the compilation")
                budget.spend(0 if self._rewrite is None else REWRITE_UNITS * len(expression))
            text = expression if self._rewrite is None else self._rewrite(expression)
            size = getsizeof(expression)
            try:
                outcome = compile_expression(text, derived=derived, emulate=self._emulate, budget=budget, owner=owner)
                size += outcome.size
            except CelCompileError as error:
                # A copy: the context of the error holds the syntax tree.
                outcome = CelCompileError(error.reason, error.source, error.offset)
                size += 3 * getsizeof(error.reason) + _FAILURE_BYTES
            (self._namespace_programs if owner else self._class_programs).put(key, outcome, size, owner)
        if isinstance(outcome, Program):
            return outcome
        raise CelCompileError(outcome.reason, outcome.source, outcome.offset)
