"""From an expression to something that can be asked about devices."""

from typing import Any, Final

import msgspec

from app.cel.budget import Budget
from app.cel.checker import Checker
from app.cel.code import Run
from app.cel.compiler import Compiler
from app.cel.cost import COST_LIMIT, Deadline, Frame, over_cost
from app.cel.derived import may_be_attribute, to_attribute
from app.cel.device import DeviceActivation
from app.cel.environment import ENVIRONMENTS, LATEST, Release
from app.cel.errors import CelCompileError, CelCostError, CelRuntimeError
from app.cel.parser import parse
from app.cel.types import BOOL, Type, TypeLimitError
from app.cel.values import Optional, type_name, unwrapped
from app.model.device import Attribute

_TOO_DEEP: Final = "the expression is nested too deeply"


class Program(msgspec.Struct, frozen=True):
    """A compiled expression: immutable, and shareable between threads and devices."""

    expression: str
    run: Run
    base_cost: int
    slots: int

    def matches(
        self, device: DeviceActivation, *, deadline: Deadline | None = None, budget: Budget | None = None
    ) -> bool:
        """Whether the device is selected.

        Args:
            device: The prepared device.
            deadline: Says whether time is up; asked every 100 rounds of loops.
            budget: What the caller may spend on this and other evaluations; its deadline counts if there is no other.

        Raises:
            CelRuntimeError: The result is no bool, or the evaluation failed; upstream aborts the pod's scheduling then.
            CelCostError: It cost more than allowed, time was up, or the budget was spent.
        """
        if budget is not None:
            value = self._within(budget, device, deadline)[0]
        else:
            if device.defect is not None:
                raise CelRuntimeError(device.defect)
            frame = Frame(device, self.base_cost, [None] * self.slots if self.slots else (), deadline)
            try:
                value = self.run(frame)
            except (CelRuntimeError, RecursionError) as error:
                raise _reported(error, frame) from None
            if frame.cost > COST_LIMIT:
                raise over_cost()
        if value is True or value is False:
            return value
        if type(value) is Optional and type(unwrapped(value)) is bool:
            return bool(unwrapped(value))
        raise CelRuntimeError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def attribute(
        self, device: DeviceActivation, *, deadline: Deadline | None = None, budget: Budget | None = None
    ) -> Attribute:
        """The value as a derived attribute: bool, int, string, version, or a list of one of these.

        Takes what `matches` takes, and raises what it raises; a value of another type, or a list that mixes types, is a
        CelRuntimeError.
        """
        evaluated = (
            self.evaluate(device, deadline=deadline) if budget is None else self._within(budget, device, deadline)
        )
        return to_attribute(evaluated[0])

    def evaluate(self, device: DeviceActivation, *, deadline: Deadline | None = None) -> tuple[Any, int]:
        """The value of the expression for a device, and the cost units that were spent; raises as `matches` does."""
        if device.defect is not None:
            raise CelRuntimeError(device.defect)
        return self._finish(Frame(device, self.base_cost, [None] * self.slots, deadline))

    def _finish(self, frame: Frame) -> tuple[Any, int]:
        try:
            value = self.run(frame)
        except (CelRuntimeError, RecursionError) as error:
            raise _reported(error, frame) from None
        if frame.cost > COST_LIMIT:
            raise over_cost()
        return value, frame.cost

    def _within(self, budget: Budget, device: DeviceActivation, deadline: Deadline | None) -> tuple[Any, int]:
        interrupts = budget.begin()
        if device.defect is not None:
            raise CelRuntimeError(device.defect)
        frame = Frame(device, self.base_cost, [None] * self.slots, interrupts if deadline is None else deadline)
        try:
            return self._finish(frame)
        finally:
            budget.charge(frame)


def _reported(error: CelRuntimeError | RecursionError, frame: Frame) -> CelRuntimeError:
    """What the caller is told: spending too much goes before any other failure."""
    if isinstance(error, RecursionError):
        return CelRuntimeError(_TOO_DEEP)
    if frame.cost > COST_LIMIT and not isinstance(error, CelCostError):
        return over_cost()
    return error


def compile_expression(expression: str, *, derived: bool = False, emulate: Release = LATEST) -> Program:
    """Compile a device selector, or the expression of a derived attribute.

    Args:
        expression: Its text.
        derived: Compile for `Program.attribute` instead of `Program.matches`.
        emulate: The Kubernetes release whose libraries it may use.

    Raises:
        CelCompileError: It is not a valid expression, or its result can never be what is wanted.
    """
    environment = ENVIRONMENTS[emulate]
    try:
        tree = parse(expression)
        checker = Checker(expression, environment.functions, environment.device)
        checked = checker.check(tree)
        problem = _unsuitable(checker.final(checked.type), environment.attribute, derived=derived)
        if problem is not None:
            raise CelCompileError(problem, expression, tree.offset)
        code = Compiler(expression, careful=checker.careful).compile(checked)
    except RecursionError:
        raise CelCompileError(_TOO_DEEP, expression, 0) from None
    except TypeLimitError:
        raise CelCompileError("the types in the expression are too large", expression, 0) from None
    return Program(expression, code.run, code.cost, checker.slots)


def _unsuitable(result: Type, attribute: Type, *, derived: bool) -> str | None:
    """Why a result of this type is never a verdict, or never a derived attribute."""
    if derived:
        scalars = "a primitive scalar (string, integer, boolean, semver) or a list of these scalars"
        return None if may_be_attribute(result) else f"must evaluate to {scalars}, not {result}"
    return None if result in {BOOL, attribute} else f"must evaluate to bool or the unknown type, not {result}"
