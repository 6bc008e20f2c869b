"""Whether an expression can be true for some device of a driver, as far as that is known without devices."""

from typing import Final, NamedTuple

from dra_extender.cel.analysis.attributes import DEVICE_MAPS, is_device_field, step_of
from dra_extender.cel.analysis.walk import children_of
from dra_extender.cel.budget import Budget
from dra_extender.cel.device import prepare_device
from dra_extender.cel.environment import LATEST, Release
from dra_extender.cel.errors import CelBudgetError, CelCompileError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.cel.syntax import ast
from dra_extender.cel.types import typed_ast
from dra_extender.cel.types.typed_ast import TypedNode

_COST: Final = 1_000_000
_SHARED: Final = ("kubernetes.io", "k8s.io")
"""Domains whose attributes devices of any driver may have."""


class _Outcomes(NamedTuple):
    """Which values a part can have; neither is possible where the part fails."""

    true: bool
    false: bool


_ANY: Final = _Outcomes(true=True, false=True)


def may_hold(source: str, driver: str, emulate: Release = LATEST) -> bool:
    """Return whether the expression can be true for a device of the driver; also where that is not known.

    A device is expected to have attributes and capacities of its driver's domain, of a domain above it, and of Kubernetes' domains.
    """
    budget = Budget(_COST, strict=True)
    try:
        expression = ExplainableExpression(source, emulate, budget)
    except (CelBudgetError, CelCompileError):
        return True
    evaluation = Evaluation(expression, prepare_device(driver, {}, {}, False), budget=budget)
    return _outcomes(evaluation, evaluation.root, driver).true


def _outcomes(evaluation: Evaluation, node: TypedNode, driver: str) -> _Outcomes:
    if isinstance(node, typed_ast.Logical):
        terms = [_outcomes(evaluation, term, driver) for term in node.terms]
        if node.absorbing:
            return _Outcomes(true=any(term.true for term in terms), false=all(term.false for term in terms))
        return _Outcomes(true=all(term.true for term in terms), false=any(term.false for term in terms))
    if isinstance(node, typed_ast.Invoke) and node.function.name == "!_":
        negated = _outcomes(evaluation, node.arguments[0], driver)
        return _Outcomes(true=negated.false, false=negated.true)
    domains = _domains_read(node.written)
    if domains is None or any(_may_have(driver, domain) for domain in domains):
        return _ANY
    outcome = evaluation.outcome(node)
    return _ANY if outcome.stopped else _Outcomes(true=outcome.value is True, false=outcome.value is False)


def _domains_read(root: ast.SyntaxNode) -> set[str] | None:
    """Return the domains whose attributes or capacities a part reads; None if it may read any, or another field than the driver."""
    domains: set[str] = set()
    pending = [root]
    while pending:
        node = pending.pop()
        step = step_of(node)
        if step is not None and any(is_device_field(step.operand, device_map) for device_map in DEVICE_MAPS):
            domains.add(step.key)
        elif isinstance(node, ast.Identifier) and node.name == "device":
            return None
        elif not is_device_field(node, "driver"):
            pending += children_of(node)
    return domains


def _may_have(driver: str, domain: str) -> bool:
    """Return whether devices of the driver are expected to have attributes of the domain."""
    return f".{driver}".endswith(f".{domain}") or any(f".{domain}".endswith(f".{shared}") for shared in _SHARED)
