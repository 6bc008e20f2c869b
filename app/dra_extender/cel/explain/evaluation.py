"""An expression whose parts can be evaluated one by one, together within the limits of one evaluation."""

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final

import msgspec

from dra_extender.cel.analysis.walk import children_of, is_free_name, nodes_of
from dra_extender.cel.budget import Budget, CompileMeter, spent_in
from dra_extender.cel.compiler.code import CompiledPart
from dra_extender.cel.compiler.compiler import Compiler
from dra_extender.cel.compiler.loops import UnevaluatedVariable
from dra_extender.cel.cost import COST_LIMIT, Deadline, EvaluationFrame, over_cost
from dra_extender.cel.device import DeviceActivation
from dra_extender.cel.environment import ENVIRONMENTS, LATEST, Release
from dra_extender.cel.errors import CelCostError, CelRuntimeError
from dra_extender.cel.explain.values import LONGEST_TEXT, shortened
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import parse
from dra_extender.cel.syntax.printer import print_beginning
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.checker import Checker
from dra_extender.cel.values.values import LISTS, MAPS, from_map_key

_OUTCOME_UNITS: Final = 100
_TEXT_UNITS: Final = 1_500
_NODE_UNITS: Final = 20
_MOST_ROUNDS: Final = 100
"""The most rounds of a loop that are evaluated again."""


class ExplainedPart(msgspec.Struct, frozen=True):
    """A part as written and as checked."""

    node: ast.SyntaxNode
    checked: typed_ast.TypedNode


class EvalResult(msgspec.Struct, frozen=True):
    """A value, or an error; `stopped` says that a limit was reached and the part did not fail by itself."""

    value: Any = None
    error: str | None = None
    stopped: bool = False


_OWNER: Final = "(explanations)"
"""The owner of regular expressions of all explanations; no namespace has such a name."""


class _Recorder(Compiler):
    """Keeps the compiled form of each part, and the part, so that no other part gets its id."""

    def __init__(self, source: str, *, dynamic_dispatch: bool) -> None:
        super().__init__(source, dynamic_dispatch=dynamic_dispatch, owner=_OWNER)
        self.codes: dict[int, tuple[typed_ast.TypedNode, CompiledPart]] = {}

    def compile(self, node: typed_ast.TypedNode) -> CompiledPart:
        code = super().compile(node)
        self.codes[id(node)] = node, code
        return code


class ExplainableExpression:
    """An expression compiled so that its parts can be evaluated, on any number of devices."""

    def __init__(self, source: str, emulate: Release = LATEST, budget: Budget | None = None) -> None:
        """Compile an expression, and charge `budget` for it.

        Raises:
            CelCompileError: It is not valid.
        """
        meter = CompileMeter(source, budget)
        tree = parse(source, meter)
        environment = ENVIRONMENTS[emulate]
        checker = Checker(source, environment.functions, environment.device, meter)
        self.source = source
        self.root = ExplainedPart(tree, checker.check(tree))
        self.slots = checker.slots
        self.recorder = _Recorder(source, dynamic_dispatch=checker.dynamic_dispatch)
        self.recorder.compile(self.root.checked)


class Evaluation:
    """Evaluates parts of one expression on one device, all together within the limits of one evaluation.

    A budget is charged for evaluating, printing and visiting parts; when it is spent, the evaluation ends, too.
    """

    def __init__(
        self,
        source: str | ExplainableExpression,
        device: DeviceActivation,
        deadline: Deadline | None = None,
        emulate: Release = LATEST,
        budget: Budget | None = None,
    ) -> None:
        """Compile the expression, unless it is prepared.

        Raises:
            CelCompileError: It is not valid.
        """
        prepared = ExplainableExpression(source, emulate, budget) if isinstance(source, str) else source
        self.root = prepared.root
        self.source = prepared.source
        self.device = device
        self._recorder = prepared.recorder
        self._stopped: EvalResult | None = None
        self._deadline = deadline
        self._budget = budget
        self._charged = 0
        self._texts: dict[int, tuple[ast.SyntaxNode, str]] = {}
        self._open: dict[int, tuple[ast.SyntaxNode, bool]] = {}
        self._frame = EvaluationFrame(device, 0, [None] * prepared.slots, self._interrupts, _OWNER)

    def outcome(self, item: ExplainedPart) -> EvalResult:
        """The result of a part, whose variables must have been set. Once stopped, nothing more is evaluated."""
        if self._stopped is not None:
            return self._stopped
        if not self.spend(_OUTCOME_UNITS):
            self._stopped = EvalResult(error="the limit for explanations was reached", stopped=True)
            return self._stopped
        found = self._evaluated(item)
        self._charge()
        self._stopped = found if found.stopped else None
        return found

    def spend(self, units: int) -> bool:
        """Charge units before they are used; false if none were left."""
        if self._budget is None:
            return True
        left = self._budget.left > 0
        if left:
            self._budget.spend(units)
        return left

    def text(self, item: ExplainedPart | ast.SyntaxNode) -> str:
        """The canonical text of a part, cut if it is long."""
        node = item.node if isinstance(item, ExplainedPart) else item
        known = self._texts.get(id(node))
        if known is None:
            text = shortened(print_beginning(node, LONGEST_TEXT)) if self.spend(_TEXT_UNITS) else "..."
            known = self._texts[id(node)] = node, text
        return known[1]

    def is_open(self, item: ExplainedPart) -> bool:
        """Whether a part depends on the device or on a variable; true if the budget is spent."""
        known = self._open.get(id(item.node))
        if known is None:
            found = any(not self.spend(_NODE_UNITS) or is_free_name(each) for each in nodes_of(item.node))
            known = self._open[id(item.node)] = item.node, found
        return known[1]

    def _spent(self) -> int:
        return spent_in(self._frame) - self._charged

    def _charge(self) -> None:
        units = self._spent()
        self._charged += units
        if self._budget is not None:
            self._budget.spend(units)

    def _interrupts(self) -> bool:
        if self._budget is not None and self._spent() > self._budget.left:
            return True
        return self._deadline is not None and self._deadline()

    def _evaluated(self, item: ExplainedPart) -> EvalResult:
        code = self._code(item)
        frame = self._frame
        frame.cost += code.cost
        try:
            value = code.run(frame)
            if frame.cost > COST_LIMIT:
                raise over_cost()
        except CelCostError as problem:
            return EvalResult(error=str(problem), stopped=True)
        except CelRuntimeError as problem:
            return EvalResult(error=str(problem))
        except RecursionError:
            return EvalResult(error="the expression is nested too deeply", stopped=True)
        return EvalResult(value)

    @property
    def cost(self) -> int:
        """The cost units of all parts so far."""
        return self._frame.cost

    def set(self, slot: int, value: Any) -> None:
        """Set the variable of a loop."""
        self._frame.slots[slot] = value

    def defer(self, slot: int, item: ExplainedPart) -> None:
        """Bind a variable as cel.bind does: its value is evaluated on first use."""
        code = self._code(item)

        def evaluate(frame: EvaluationFrame) -> Any:
            frame.cost += code.cost
            return code.run(frame)

        self._frame.slots[slot] = UnevaluatedVariable(evaluate)

    def _code(self, item: ExplainedPart) -> CompiledPart:
        known = self._recorder.codes.get(id(item.checked))
        return self._recorder.compile(item.checked) if known is None else known[1]


def operands(item: ExplainedPart) -> list[ExplainedPart]:
    """The parts that are evaluated in the scope of this one, in order: not the body of a loop or binding."""
    node, checked = item.node, item.checked
    if isinstance(node, ast.Comprehension):
        return [source_of(item)]
    if isinstance(node, ast.Select):
        return [ExplainedPart(node.operand, checked.operand)] if isinstance(checked, typed_ast.FieldSelection) else []
    if isinstance(node, ast.CallExpression):
        return list(_arguments(node, checked))
    written = children_of(node)
    return [ExplainedPart(*pair) for pair in zip(written, _literal_parts(checked), strict=True)] if written else []


def _literal_parts(checked: typed_ast.TypedNode) -> Sequence[typed_ast.TypedNode]:
    """The elements of a list literal, or the keys and values of a map literal, each key before its value."""
    if isinstance(checked, typed_ast.MakeList):
        return checked.elements
    assert isinstance(checked, typed_ast.MakeMap)  # noqa: S101 - for the type checker: other nodes have been dealt with
    return tuple(chain.from_iterable(zip(checked.keys, checked.values, strict=True)))


def _arguments(node: ast.CallExpression, checked: typed_ast.TypedNode) -> Iterator[ExplainedPart]:
    known: tuple[typed_ast.TypedNode, ...] = ()
    match checked:
        case typed_ast.Logical():
            known = checked.terms
        case typed_ast.Conditional():
            known = (checked.condition, checked.chosen, checked.other)
        case typed_ast.Index():
            known = (checked.operand, checked.key)
        case typed_ast.Invoke():
            known = checked.arguments
    written = node.arguments
    if len(known) > len(written) and node.target is not None:
        written = (node.target, *written)
    return (ExplainedPart(*pair) for pair in zip(written, known, strict=False))


def source_of(item: ExplainedPart) -> ExplainedPart:
    """The source of a loop, or the value of a binding."""
    assert isinstance(item.node, ast.Comprehension)  # noqa: S101 - for the type checker; callers asked for it
    checked = item.checked
    assert isinstance(checked, typed_ast.ComprehensionLoop | typed_ast.CelBind | typed_ast.OptionalMap | typed_ast.Sort)  # noqa: S101
    return ExplainedPart(item.node.source, checked.value if isinstance(checked, typed_ast.CelBind) else checked.source)


def body_of(item: ExplainedPart) -> ExplainedPart:
    """The body of a loop or binding: a predicate, a transformation, a key or an expression."""
    assert isinstance(item.node, ast.Comprehension)  # noqa: S101 - for the type checker; callers asked for it
    checked = item.checked
    assert isinstance(checked, typed_ast.ComprehensionLoop | typed_ast.CelBind | typed_ast.OptionalMap | typed_ast.Sort)  # noqa: S101
    return ExplainedPart(item.node.body, checked.key if isinstance(checked, typed_ast.Sort) else checked.body)


def rounds_of(values: Any, width: int) -> Iterator[tuple[Any, ...]]:
    """The values of the `width` variables of a loop in its first rounds."""
    if type(values) in MAPS:
        pairs: Iterator[tuple[Any, ...]] = ((from_map_key(key), value) for key, value in values.items())
        return islice(pairs if width > 1 else ((key,) for key, _ in pairs), _MOST_ROUNDS)
    if type(values) in LISTS:
        return islice(enumerate(values) if width > 1 else ((value,) for value in values), _MOST_ROUNDS)
    return iter(())
