"""An expression whose parts can be evaluated one by one, together within the limits of one evaluation."""

from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import msgspec

from dra_extender.cel.analysis.walk import is_free_name, nodes_of
from dra_extender.cel.budget import Budget, CompileMeter, spent_in
from dra_extender.cel.compiler.code import CompiledPart
from dra_extender.cel.compiler.compiler import Compiler
from dra_extender.cel.compiler.loops import UnevaluatedVariable, charging, elements_of, pairs_of
from dra_extender.cel.cost import COST_LIMIT, Deadline, EvaluationFrame, over_cost
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.explain.values import LONGEST_TEXT, shortened
from dra_extender.cel.program import check_expression
from dra_extender.cel.syntax.ast import SyntaxNode
from dra_extender.cel.syntax.printer import print_expression
from dra_extender.cel.types.typed_ast import TypedNode
from dra_extender.cel.values.values import CONTAINERS

_OUTCOME_UNITS: Final = 100
_TEXT_UNITS: Final = 1_500
_NODE_UNITS: Final = 20
_MOST_ROUNDS: Final = 100
"""The most rounds of a loop that are evaluated again."""
_OWNER: Final = "(explanations)"
"""The owner of regular expressions of all explanations; no namespace has such a name."""


class EvalResult(msgspec.Struct, frozen=True):
    """A value, or an error; `stopped` says that a limit was reached and the part did not fail by itself."""

    value: Any = None
    error: str | None = None
    stopped: bool = False


class ExplainableExpression(Compiler):
    """An expression and the compiled form of each of its parts, which can be evaluated on any number of devices."""

    def __init__(self, source: str, emulate: Release = LATEST, budget: Budget | None = None) -> None:
        """Compile an expression, and charge `budget` for it; one that is not valid is a CelCompileError."""
        checker, self.root, _ = check_expression(source, emulate, CompileMeter(source, budget))
        super().__init__(source, dynamic_dispatch=checker.dynamic_dispatch, owner=_OWNER)
        self.slots = checker.slots
        # A part is kept with its compiled form, so that no other part gets its id.
        self._parts: dict[int, tuple[TypedNode, CompiledPart]] = {}
        self.compile(self.root)

    def compile(self, node: TypedNode) -> CompiledPart:
        part = super().compile(node)
        self._parts[id(node)] = node, part
        return part

    def compiled_part(self, node: TypedNode) -> CompiledPart:
        kept = self._parts.get(id(node))
        return self.compile(node) if kept is None else kept[1]


class Evaluation:
    """Evaluates parts of one expression on one device, all together within the limits of one evaluation.

    A budget is charged for evaluating, printing and visiting parts; when it is spent, the evaluation ends, too.
    """

    def __init__(
        self,
        expression: ExplainableExpression,
        device: DeviceActivation,
        deadline: Deadline | None = None,
        budget: Budget | None = None,
    ) -> None:
        self.root = expression.root
        self.device = device
        self._expression = expression
        self._stopped: EvalResult | None = None
        self._deadline = deadline
        self._budget = budget
        self._charged = 0
        self._texts: dict[int, tuple[SyntaxNode, str]] = {}
        self._open: dict[int, bool] = {}
        self._frame = EvaluationFrame(device, 0, [None] * expression.slots, self._interrupts, _OWNER)

    @property
    def cost(self) -> int:
        """The cost units of all parts so far."""
        return self._frame.cost

    def outcome(self, node: TypedNode) -> EvalResult:
        """Evaluate a part, whose variables must have been set. Once stopped, nothing more is evaluated."""
        if self._stopped is not None:
            return self._stopped
        if not self.spend(_OUTCOME_UNITS):
            self._stopped = EvalResult(error="the limit for explanations was reached", stopped=True)
            return self._stopped
        evaluate, frame = charging(self._expression.compiled_part(node)), self._frame
        try:
            result = EvalResult(evaluate(frame))
            if frame.cost > COST_LIMIT:
                raise over_cost()
        except CelRuntimeError as problem:
            result = EvalResult(error=str(problem), stopped=isinstance(problem, CelCostError))
        except RecursionError:
            result = EvalResult(error="the expression is nested too deeply", stopped=True)
        units = self._spent()
        self._charged += units
        if self._budget is not None:
            self._budget.spend(units)
        self._stopped = result if result.stopped else None
        return result

    def spend(self, units: int) -> bool:
        """Charge units before they are used; return False if none were left."""
        if self._budget is None:
            return True
        has_budget = self._budget.remaining > 0
        if has_budget:
            self._budget.spend(units)
        return has_budget

    def text(self, node: TypedNode) -> str:
        """Return the canonical text of a part, cut if it is long."""
        written = node.written
        cached = self._texts.get(id(written))
        if cached is None:
            text = shortened(print_expression(written, LONGEST_TEXT)) if self.spend(_TEXT_UNITS) else "..."
            cached = self._texts[id(written)] = written, text
        return cached[1]

    def is_open(self, node: TypedNode) -> bool:
        """Return whether a part depends on the device or on a variable; True if the budget is spent."""
        is_open_part = self._open.get(id(node.written))
        if is_open_part is None:
            is_open_part = any(not self.spend(_NODE_UNITS) or is_free_name(part) for part in nodes_of(node.written))
            self._open[id(node.written)] = is_open_part
        return is_open_part

    def set_variables(self, slots: tuple[int, ...], values: tuple[Any, ...]) -> None:
        for slot, value in zip(slots, values, strict=True):
            self._frame.slots[slot] = value

    def defer(self, slot: int, node: TypedNode) -> None:
        """Bind a variable as cel.bind does: its value is evaluated on first use."""
        self._frame.slots[slot] = UnevaluatedVariable(charging(self._expression.compiled_part(node)))

    def _spent(self) -> int:
        return spent_in(self._frame) - self._charged

    def _interrupts(self) -> bool:
        if self._budget is not None and self._spent() > self._budget.remaining:
            return True
        return self._deadline is not None and self._deadline()


def rounds_of(values: Any, width: int) -> Iterator[tuple[Any, ...]]:
    """Return the values of the `width` variables of a loop over these values in its first rounds."""
    if type(values) not in CONTAINERS:
        return iter(())
    return islice(pairs_of(values) if width > 1 else ((value,) for value in elements_of(values)), _MOST_ROUNDS)
