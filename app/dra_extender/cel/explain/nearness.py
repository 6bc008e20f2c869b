"""How far a device is from satisfying an expression, the smallest change that selects it, and whether any device can satisfy it."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dra_extender.cel.analysis.attributes import driver_of, is_device_field, is_device_map, is_shared_domain, step_of
from dra_extender.cel.analysis.walk import children_of, is_free_name, joined, mapped, nodes_of
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import DeviceActivation, prepare_device
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression, rounds_of
from dra_extender.cel.explain.messages import OPPOSITE, absent_part, comparison
from dra_extender.cel.explain.values import quantity_text
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.printer import print_expression, text_literal
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode, operands
from dra_extender.cel.values.quantity import Quantity
from dra_extender.cel.values.semver import Semver
from dra_extender.cel.values.values import unwrapped

_WRONG: Final = 2.0
"""The distance of a condition that no amount can satisfy: a text, a flag, an attribute that is absent."""
_FOREIGN: Final = 3.0
"""The distance of a condition on domains of which the device has nothing."""
_NUMBERS: Final = frozenset({int, float})
_WEAKER: Final = {"_<_": "_<=_", "_<=_": "_<=_", "_>_": "_>=_", "_>=_": "_>=_", "_==_": "_==_", "_!=_": "_==_"}
"""The comparison with the device's own value that is true where another one is false."""
_METHODS: Final = {"isGreaterThan": "_>_", "isLessThan": "_<_"}
"""Comparisons of quantities and versions by their methods."""
_TESTS: Final = frozenset({"@in", "startsWith", "endsWith", "contains", "matches", "includes"})
"""Tests of a value, its first operand, that equality with the device's value replaces."""
_PLAIN: Final = (bool, int, float, str)
_COST: Final = 1_000_000
_NODE_UNITS: Final = 20

_Variables = Mapping[str, TypedNode]
"""What the variables of a part stand for, by name: the value of a cel.bind, or what the elements of a loop are of."""


class Relaxation(NamedTuple):
    """Another expression, and what it asks for in the place of the unmet conditions: `memory >= 40Gi`.

    `selects_others`: one of these says by a value which devices are meant, such as `model == "a100"` where another model was.
    """

    expression: str
    conditions: tuple[str, ...]
    selects_others: bool


def distance(expression: ExplainableExpression, device: DeviceActivation, budget: Budget | None = None) -> float:
    """Return 0 if the expression is true for the device, otherwise the sum over its unmet conditions.

    A comparison of two amounts counts 1 and the part of the larger one by which they differ; any other condition counts 2, and so
    does one that fails; one on domains of which the device has nothing counts 3. Of alternatives the nearest counts. What is
    evaluated is charged to `budget`; where that is spent, the rest counts as unmet.
    """
    evaluation = Evaluation(expression, device, budget=budget)
    return _WRONG if device.defect is not None else _distance(evaluation, evaluation.root, expected=True)


def _distance(evaluation: Evaluation, node: TypedNode, *, expected: bool) -> float:
    outcome = evaluation.outcome(node)
    if outcome.error is None and unwrapped(outcome.value) is expected:
        return 0.0
    match node:
        case typed_ast.Logical():
            terms = (_distance(evaluation, term, expected=expected) for term in node.terms)
            # `&&` that should be true, and `||` that should be false, need all their terms.
            return sum(terms) if node.absorbing is not expected else min(terms, default=_WRONG)
        case typed_ast.Invoke() if node.function.name == "!_":
            return _distance(evaluation, node.arguments[0], expected=not expected)
        case typed_ast.Conditional():
            return _distance(evaluation, _taken_branch(evaluation, node), expected=expected)
        case typed_ast.CelBind():
            evaluation.defer(node.slot, node.source)
            return _distance(evaluation, node.body, expected=expected)
        case typed_ast.ComprehensionLoop(kind="exists") if expected:
            distances = (_distance(evaluation, node.body, expected=True) for _ in _rounds(evaluation, node))
            return min(distances, default=_WRONG)
    if outcome.error is not None or _function(node) not in _WEAKER:
        domains = _domains_read(node.written)
        has_none = domains and domains.isdisjoint({*evaluation.device.attributes, *evaluation.device.capacity})
        return _FOREIGN if has_none else _WRONG
    sides = (unwrapped(evaluation.outcome(side).value) for side in comparison(node)[::2])
    left, right = (side.nano if isinstance(side, Quantity) else side for side in sides)
    if type(left) not in _NUMBERS or type(right) not in _NUMBERS:
        return _WRONG
    return 1.0 + abs(float(left) - float(right)) / max(abs(float(left)), abs(float(right)), 1)


def _rounds(evaluation: Evaluation, loop: typed_ast.ComprehensionLoop) -> Iterator[tuple[Any, ...]]:
    """Yield the values of the variables of a loop, round by round, when they are set."""
    for values in rounds_of(evaluation.outcome(loop.source).value, len(loop.slots)):
        evaluation.set_variables(loop.slots, values)
        yield values


def _taken_branch(evaluation: Evaluation, node: typed_ast.Conditional) -> TypedNode:
    """Return the branch that decides; the condition itself where it fails."""
    condition = evaluation.outcome(node.condition)
    if condition.error is not None:
        return node.condition
    return node.then_branch if condition.value is True else node.else_branch


def _function(node: TypedNode) -> str:
    return node.written.function if isinstance(node.written, ast.CallExpression) else ""


def required_driver(expression: ExplainableExpression) -> str | None:
    """Return the driver that a device must have: `device.driver == "..."`, alone or joined by `&&`; None if no part says so."""
    drivers = map(driver_of, joined(expression.root.written, frozenset({"_&&_"})))
    return next((driver for driver in drivers if driver is not None), None)


def relaxed(
    expression: ExplainableExpression, device: DeviceActivation, budget: Budget | None = None
) -> Relaxation | None:
    """Return the expression with constants that the device has, in the fewest comparisons, tests and flags that are false for it.

    Of alternatives the nearest one is changed. The result is None if that is not enough. What is evaluated is charged to
    `budget`; the result is None also where that is spent.
    """
    evaluation = Evaluation(expression, device, budget=budget)
    changes = None if device.defect is not None else _weakenings(evaluation, evaluation.root, {}, expected=True)
    if not changes:
        return None
    weaker_nodes = {id(change.written): change.weaker for change in changes}
    tree = mapped(evaluation.root.written, lambda node: weaker_nodes.get(id(node)))
    conditions = tuple(change.text for change in changes)
    return Relaxation(print_expression(tree), conditions, any(change.selects_others for change in changes))


class _Weakening(NamedTuple):
    """A condition as it is written, what replaces it, and what that asks for; `selects_others` as in Relaxation."""

    written: ast.SyntaxNode
    weaker: ast.SyntaxNode
    text: str
    selects_others: bool


def _weakenings(
    evaluation: Evaluation, node: TypedNode, variables: _Variables, *, expected: bool
) -> list[_Weakening] | None:
    """Return what makes a part `expected`; None if nothing does."""
    outcome = evaluation.outcome(node)
    if outcome.error is None and unwrapped(outcome.value) is expected:
        return []
    match node:
        case typed_ast.Logical() if node.absorbing is not expected:
            of_terms = [_weakenings(evaluation, term, variables, expected=expected) for term in node.terms]
            changes = [change for of_term in of_terms for change in of_term or ()]
            return None if None in of_terms else changes
        case typed_ast.Logical():
            terms = sorted(node.terms, key=lambda term: _distance(evaluation, term, expected=expected))
            alternatives = (_weakenings(evaluation, term, variables, expected=expected) for term in terms)
            return next((changes for changes in alternatives if changes is not None), None)
        case typed_ast.Invoke() if node.function.name == "!_":
            return _weakenings(evaluation, node.arguments[0], variables, expected=not expected)
        case typed_ast.Conditional():
            return _weakenings(evaluation, _taken_branch(evaluation, node), variables, expected=expected)
        case typed_ast.CelBind():
            evaluation.defer(node.slot, node.source)
            return _weakenings(evaluation, node.body, _with_variables(variables, node), expected=expected)
        case typed_ast.ComprehensionLoop(kind="exists") if expected:
            # The element that comes closest.
            nearest = min(
                _rounds(evaluation, node), key=lambda _: _distance(evaluation, node.body, expected=True), default=()
            )
            if not nearest:
                return None
            evaluation.set_variables(node.slots, nearest)
            return _weakenings(evaluation, node.body, _with_variables(variables, node), expected=True)
    weakening = _weakened(evaluation, node, variables, expected=expected)
    return None if weakening is None else [weakening]


def _with_variables(variables: _Variables, node: typed_ast.CelBind | typed_ast.ComprehensionLoop) -> _Variables:
    """Return the variables with those that a loop or a cel.bind adds."""
    names = node.written.names if isinstance(node.written, ast.Comprehension) else ()
    return {**variables, **dict.fromkeys(names, _bound(node.source, variables))}


def _parts_read(node: TypedNode, variables: _Variables) -> Iterator[TypedNode]:
    """Yield a part and what the variables that it reads stand for, each once."""
    pending, names = [node], set[str]()
    while pending:
        part = pending.pop()
        yield part
        read = {name.name for name in nodes_of(part.written) if isinstance(name, ast.Identifier)} - names
        names |= read
        pending += [variables[name] for name in read if name in variables]


def _is_open(evaluation: Evaluation, node: TypedNode, variables: _Variables) -> bool:
    """Return whether a part depends on the device; True if the budget is spent."""
    return any(
        not evaluation.spend(_NODE_UNITS)
        or (isinstance(name, ast.Identifier) and is_free_name(name) and name.name not in variables)
        for part in _parts_read(node, variables)
        for name in nodes_of(part.written)
    )


def _bound(node: TypedNode, variables: _Variables) -> TypedNode:
    """Return the value of a variable of cel.bind; any other part as it is."""
    if isinstance(node, typed_ast.Variable) and node.lazy and isinstance(node.written, ast.Identifier):
        return variables.get(node.written.name, node)
    return node


def _weakened(evaluation: Evaluation, node: TypedNode, variables: _Variables, *, expected: bool) -> _Weakening | None:
    """Return a comparison with the value that the device has; None if the node is no flag and tests no value against a constant."""
    written, flag = _function(node), _bound(node, variables)
    right: TypedNode | None = None
    symbol, names_value = "_==_", written in _TESTS and expected
    if written in _WEAKER or written in _METHODS:
        (left, right), function = operands(node), _METHODS.get(written, "")
        if written in _WEAKER:
            left, function, right = comparison(node)
        if not _is_open(evaluation, left, variables):
            left, right, function = right, left, ast.MIRRORED[function]
        wanted = function if expected else OPPOSITE[function]
        symbol, names_value = _WEAKER[wanted], wanted == "_==_"
    elif written in _TESTS:
        left, right = operands(node)
    elif isinstance(flag, typed_ast.Index) or (isinstance(flag, typed_ast.FieldSelection) and not flag.test):
        left = node
    else:
        return None
    outcome = evaluation.outcome(left)
    if outcome.error is not None or not _is_open(evaluation, left, variables):
        return None
    if right is not None and _is_open(evaluation, right, variables):
        return None
    if any(absent_part(evaluation, part) is not None for part in _parts_read(left, variables)):
        # What stands in the place of an attribute is no value of the device.
        return None
    value = unwrapped(outcome.value)
    subject = left.written
    # Where the condition should be false, the opposite stands in its place.
    replacing = symbol if expected else OPPOSITE[symbol]
    if isinstance(value, Quantity | Semver):
        text = quantity_text(value.nano) if isinstance(value, Quantity) else value.text
        maker = "quantity" if isinstance(value, Quantity) else "semver"
        constant = _call(maker, None, ast.Literal(0, 1, text))
        compared = _call(replacing, None, _call("compareTo", subject, constant), ast.Literal(0, 1, 0))
    elif type(value) in _PLAIN:
        text = text_literal(value) if isinstance(value, str) else str(value).lower()
        compared = _call(replacing, None, subject, ast.Literal(0, 1, value))
    else:
        return None
    # The last name of an access is what people call an attribute or a capacity.
    named = _bound(left, variables).written
    name = named.field if isinstance(named, ast.Select) else print_expression(named)
    return _Weakening(
        node.written, compared, f"{name} {symbol.strip('_')} {text}", names_value and type(value) is not bool
    )


def _call(function: str, target: ast.SyntaxNode | None, *arguments: ast.SyntaxNode) -> ast.CallExpression:
    return ast.CallExpression(0, ast.depth_above(target, *arguments), function, target, arguments)


def may_hold(source: str, driver: str, emulate: Release = LATEST) -> bool:
    """Return whether the expression can be true for a device of the driver; also where that is not known."""
    budget = Budget(_COST)
    try:
        expression = ExplainableExpression(source, emulate, budget)
    except (CelBudgetError, CelCompileError):
        return True
    evaluation = Evaluation(expression, prepare_device(driver, {}, {}, False), budget=budget)
    return True in _possible_values(evaluation, evaluation.root, driver)


def _possible_values(evaluation: Evaluation, node: TypedNode, driver: str) -> set[bool]:
    """Return the values that a condition can have on devices of the driver; none if it always fails."""
    if isinstance(node, typed_ast.Logical):
        terms = [_possible_values(evaluation, term, driver) for term in node.terms]
        values = {node.absorbing} if any(node.absorbing in term for term in terms) else set()
        return values | {not node.absorbing} if all((not node.absorbing) in term for term in terms) else values
    if isinstance(node, typed_ast.Invoke) and node.function.name == "!_":
        return {not value for value in _possible_values(evaluation, node.arguments[0], driver)}
    domains = _domains_read(node.written)
    # Devices are expected to have attributes of their driver's domain, of a domain above it, and of Kubernetes' domains.
    if domains is None or any(f".{driver}".endswith(f".{domain}") or is_shared_domain(domain) for domain in domains):
        return {True, False}
    outcome = evaluation.outcome(node)
    if outcome.stopped:
        return {True, False}
    return {outcome.value} if isinstance(outcome.value, bool) else set()


def _domains_read(root: ast.SyntaxNode) -> set[str] | None:
    """Return the domains whose attributes or capacities a part reads; None if it may read any, or another field than the driver."""
    domains: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        step = step_of(node)
        if step is not None and is_device_map(step.operand):
            domains.add(step.key)
        elif isinstance(node, ast.Identifier) and node.name == "device":
            return None
        elif not is_device_field(node, "driver"):
            pending += children_of(node)
    return domains
