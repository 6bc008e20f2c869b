"""The lint of one expression: errors, and what may not mean what its author thinks."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Final

from dra_extender.cel.analysis.attributes import (
    access_of,
    device_map_of,
    driver_of,
    is_device_field,
    is_device_map,
    step_of,
)
from dra_extender.cel.analysis.walk import inlined, nodes_of
from dra_extender.cel.budget import CLAIM_COMPILE_LIMIT, COMPILE_LIMIT, TOO_LARGE
from dra_extender.cel.cost import COST_LIMIT
from dra_extender.cel.device import Attribute, DeviceActivation, prepare_device
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.explain.evaluation import Evaluation, ExplainableExpression
from dra_extender.cel.lint.attributes import facts_of, guard_findings, path_findings
from dra_extender.cel.lint.comparisons import comparison_findings
from dra_extender.cel.lint.constants import constant_findings
from dra_extender.cel.lint.findings import LintCode, LintFinding, Severity, error, warning
from dra_extender.cel.program import compile_expression
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.ast import CallExpression, SyntaxNode
from dra_extender.cel.syntax.parser import MAX_LENGTH, parse

_NEAR: Final = 0.9
_COSTLY: Final = 0.5
_ATTRIBUTES: Final = 32
_LONGEST_VALUE: Final = 64
_DRIVER: Final = "largest.example.com"


def _limit_findings(
    source: str, tree: ast.SyntaxNode, units: int, expression: ExplainableExpression
) -> Iterator[LintFinding]:
    """Yield the findings about the limits of an expression; its cost is measured on a device as large as the API allows."""
    if units > _COSTLY * COMPILE_LIMIT:
        message = f"compiling it takes {units} of {COMPILE_LIMIT} units that an expression may take"
        yield warning(LintCode.COMPILE_LIMIT, 0, message)
    length = len(source.encode(errors="surrogatepass"))
    if length > _NEAR * MAX_LENGTH:
        yield warning(LintCode.LENGTH_LIMIT, 0, f"it has {length} of {MAX_LENGTH} bytes that an expression may have")
    evaluation = Evaluation(expression, _largest_device(tree))
    outcome = evaluation.outcome(evaluation.root)
    if outcome.stopped:
        yield error(LintCode.COST_LIMIT, 0, f"on a device with {_ATTRIBUTES} attributes it is stopped: {outcome.error}")
    elif evaluation.cost > _COSTLY * COST_LIMIT:
        message = f"on a device with {_ATTRIBUTES} attributes it costs {evaluation.cost} of {COST_LIMIT} units"
        yield warning(LintCode.COST_LIMIT, 0, message)


def claim_limit_findings(units: int) -> Iterator[LintFinding]:
    """Yield the findings about the different expressions of a claim, which together compile in `units`."""
    message = (
        f"compiling the expressions of the claim takes {units} of {CLAIM_COMPILE_LIMIT} units that a claim may take"
    )
    if units > CLAIM_COMPILE_LIMIT:
        yield error(LintCode.COMPILE_LIMIT, 0, message)
    elif units > _COSTLY * CLAIM_COMPILE_LIMIT:
        yield warning(LintCode.COMPILE_LIMIT, 0, message)


def _largest_device(tree: ast.SyntaxNode) -> DeviceActivation:
    """Return a device with what the expression reads and as many further attributes as the API allows."""
    value = Attribute(string_value="x" * _LONGEST_VALUE)
    driver = next((name for name in map(driver_of, nodes_of(tree)) if name), _DRIVER)
    attributes: dict[str, Attribute] = {}
    capacity: dict[str, str] = {}
    for node in nodes_of(tree):
        access = access_of(node)
        if access is None:
            continue
        name = f"{access.domain or driver}/{access.name}"
        if access.device_map == "attributes":
            attributes[name] = value
        else:
            capacity[name] = "1"
    for number in range(_ATTRIBUTES - len(attributes)):
        attributes[f"{driver}/{number:032}"] = value
    return prepare_device(driver, attributes, capacity, allow_multiple_allocations=False)


_NO_DEVICE: Final = prepare_device("", {}, {}, allow_multiple_allocations=False)
_FOREIGN: Final = ("and", "or", "not", "True", "False", "None", "=", "===", "&", "|")
_CEL: Final = ("&&", "||", "!", "true", "false", "null", "==", "==", "&&", "||")
_CEL_SPELLINGS: Final = dict(zip(_FOREIGN, _CEL, strict=True))
_TOKEN: Final = re.compile(r"\w+|[=!<>&|]+")
_AFTER_NOT: Final = re.compile(r"(.*\W)?not\s+", re.DOTALL)


def lint(expression: str, *, before: Sequence[str] | None = (), condition: bool = True) -> tuple[LintFinding, ...]:
    """Return the findings of an expression in the order of its text; an empty result means that the lint found nothing wrong.

    Args:
        expression: Any text.
        before: The selectors that are evaluated before this one, such as those of the class: what they guarantee needs no guard.
            None if they are not known; guards are not checked then.
        condition: Whether the result must be a bool, as that of a selector; that of a derived attribute need not.
    """
    if len(expression.encode(errors="surrogatepass")) > MAX_LENGTH:
        return (
            error(LintCode.LENGTH_LIMIT, 0, f"it is longer than {MAX_LENGTH} bytes, more than an API server accepts"),
        )
    try:
        tree = inlined(_parsed(expression), _is_path)
    except CelCompileError as problem:
        return (_not_compiling(problem),)
    trees = []
    for selector in before or ():
        with suppress(CelCompileError):
            trees.append(_parsed(selector))
    facts = facts_of(trees)
    named = filter(None, map(driver_of, nodes_of(tree)))
    drivers = frozenset(fact[1] for fact in facts if fact[0] in {"driver", "domain"}).union(named)
    findings = [*path_findings(tree, drivers), *comparison_findings(tree)]
    try:
        units = compile_expression(expression, derived=not condition).units
        prepared = ExplainableExpression(expression)
    except CelCompileError as problem:
        if not any(finding.severity is Severity.ERROR for finding in findings):
            findings.append(_not_compiling(problem))
        return _ordered(findings)
    constants = constant_findings(Evaluation(prepared, _NO_DEVICE))
    findings.extend(finding for finding in constants if condition or finding.code is LintCode.CONSTANT_FAILURE)
    findings.extend(_limit_findings(expression, tree, units, prepared))
    if before is not None and not any(finding.severity is Severity.ERROR for finding in findings):
        findings.extend(guard_findings(tree, facts))
    return _ordered(findings)


def _is_path(node: SyntaxNode) -> bool:
    """Return whether variables with this value are replaced: `device.attributes`, and a domain of it with a plain key.

    Other keys could use variables twice, which would double the tree with each binding.
    """
    if device_map_of(node) is None:
        return is_device_map(node)
    return step_of(node) is not None or (
        isinstance(node, CallExpression) and is_device_field(node.arguments[1], "driver")
    )


def units_of(expression: str, *, condition: bool) -> int:
    """Return the units that compiling an expression takes; the limit of one for what does not compile."""
    try:
        return compile_expression(expression, derived=not condition).units
    except CelCompileError:
        return COMPILE_LIMIT


@lru_cache(maxsize=32)
def _parsed(expression: str) -> SyntaxNode:
    """Parse an expression once: each selector of a request comes before all that follow, of which there may be 32."""
    return parse(expression)


def _not_compiling(problem: CelCompileError) -> LintFinding:
    if problem.reason == TOO_LARGE:
        return error(LintCode.COMPILE_LIMIT, 0, problem.reason)
    tokens = _TOKEN.finditer(problem.source)
    written = next((token.group() for token in tokens if token.start() <= problem.offset < token.end()), "")
    if _AFTER_NOT.fullmatch(problem.source, 0, problem.offset):
        written = "not"
    spelling = _CEL_SPELLINGS.get(written)
    suggestion = "" if spelling is None else f"{spelling} instead of {written}"
    return error(LintCode.DOES_NOT_COMPILE, problem.offset, problem.reason, suggestion)


def _ordered(findings: list[LintFinding]) -> tuple[LintFinding, ...]:
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: (finding.offset, finding.severity, finding.code)))
