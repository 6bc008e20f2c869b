"""How many instructions of Python's interpreter an evaluation takes, which is the same on every machine."""

import sys
from types import FrameType
from typing import Any, Final

from dra_extender.cel.cost import COST_LIMIT, WORK_LIMIT, EvaluationFrame
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.program import CostedProgram

INSTRUCTIONS_PER_UNIT: Final = 8
"""Instructions that take about the time of a unit of work."""


def evaluate_counting(program: CostedProgram, device: DeviceActivation) -> tuple[int, EvaluationFrame]:
    """Evaluate with costs, which may fail but not reach a limit; return the instructions and the frame with what was charged."""
    frame = program.frame(device, None)
    count = 0

    def in_function(_: FrameType, event: str, __: Any) -> Any:
        nonlocal count
        count += event == "opcode"
        return in_function

    def at_call(called: FrameType, _: str, __: Any) -> Any:
        called.f_trace_opcodes, called.f_trace_lines = True, False
        return in_function

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        program.evaluate(frame)
    except CelCostError:
        raise
    except CelRuntimeError:
        pass
    finally:
        sys.settrace(before)
    return count, frame


def units_of(cost: float, work: float) -> float:
    """Return the units of work that bring an evaluation as near to its limits as this cost and this work do."""
    return max(cost * WORK_LIMIT / COST_LIMIT, work)
