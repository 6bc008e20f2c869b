"""From an expression to something that can be asked about devices."""

from typing import Any, Final

import msgspec

from app.cel.checker import Checker
from app.cel.code import Run
from app.cel.compiler import Compiler
from app.cel.cost import COST_LIMIT, Deadline, Frame, over_cost
from app.cel.device import DeviceActivation
from app.cel.environment import DEVICE_FIELDS, FUNCTIONS
from app.cel.errors import CelCompileError, CelCostError, CelRuntimeError
from app.cel.parser import parse
from app.cel.types import BOOL, DYN, TypeLimitError
from app.cel.values import type_name

_TOO_DEEP: Final = "the expression is nested too deeply"


class Program(msgspec.Struct, frozen=True):
    """A compiled selector: immutable, and shareable between threads and devices."""

    expression: str
    run: Run
    base_cost: int
    slots: int

    def matches(self, device: DeviceActivation, *, deadline: Deadline | None = None) -> bool:
        """Whether the device is selected.

        Args:
            device: The prepared device.
            deadline: Says whether time is up; asked every 100 rounds of loops.

        Raises:
            CelRuntimeError: The result is no bool, or the evaluation failed; upstream aborts the pod's scheduling then.
            CelCostError: It cost more than allowed, or time was up.
        """
        if device.defect is not None:
            raise CelRuntimeError(device.defect)
        frame = Frame(device, self.base_cost, self.slots, deadline)
        try:
            value = self.run(frame)
        except (CelRuntimeError, RecursionError) as error:
            raise _reported(error, frame) from None
        if frame.cost > COST_LIMIT:
            raise over_cost()
        if value is True or value is False:
            return value
        raise CelRuntimeError(f"CEL result of type {type_name(value)} could not be converted to bool")

    def evaluate(self, device: DeviceActivation, *, deadline: Deadline | None = None) -> tuple[Any, int]:
        """The value of the expression for a device, and the cost units that were spent; raises as `matches` does."""
        if device.defect is not None:
            raise CelRuntimeError(device.defect)
        frame = Frame(device, self.base_cost, self.slots, deadline)
        try:
            value = self.run(frame)
        except (CelRuntimeError, RecursionError) as error:
            raise _reported(error, frame) from None
        if frame.cost > COST_LIMIT:
            raise over_cost()
        return value, frame.cost


def _reported(error: CelRuntimeError | RecursionError, frame: Frame) -> CelRuntimeError:
    """What the caller is told: spending too much goes before any other failure."""
    if isinstance(error, RecursionError):
        return CelRuntimeError(_TOO_DEEP)
    if frame.cost > COST_LIMIT and not isinstance(error, CelCostError):
        return over_cost()
    return error


def compile_expression(expression: str) -> Program:
    """Compile a device selector.

    Raises:
        CelCompileError: It is not a valid expression, or its result can never be a bool.
    """
    try:
        tree = parse(expression)
        checker = Checker(expression, FUNCTIONS, DEVICE_FIELDS)
        checked = checker.check(tree)
        result = checker.final(checked.type)
        if result not in {BOOL, DYN}:
            raise CelCompileError(f"must evaluate to bool or the unknown type, not {result}", expression, tree.offset)
        code = Compiler(expression).compile(checked)
    except RecursionError:
        raise CelCompileError(_TOO_DEEP, expression, 0) from None
    except TypeLimitError:
        raise CelCompileError("the types in the expression are too large", expression, 0) from None
    return Program(expression, code.run, code.cost, checker.slots)
