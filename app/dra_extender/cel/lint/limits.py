"""Expressions near the limits of length and cost."""

from collections.abc import Iterator
from typing import Final

from dra_extender.cel.analysis.attribute_access import access_of, driver_of
from dra_extender.cel.analysis.visitor import nodes_of
from dra_extender.cel.explain.evaluation import Evaluation
from dra_extender.cel.lint.findings import LintCode, LintFinding, error, warning
from dra_extender.cel.runtime.compile_limits import CLAIM_COMPILE_LIMIT, COMPILE_LIMIT
from dra_extender.cel.runtime.cost import COST_LIMIT
from dra_extender.cel.runtime.device import DeviceActivation, prepare_device
from dra_extender.cel.syntax import ast
from dra_extender.cel.syntax.parser import MAX_LENGTH
from dra_extender.model.device import Attribute

_NEAR: Final = 0.9
_COSTLY: Final = 0.5
_ATTRIBUTES: Final = 32
_LONGEST_VALUE: Final = 64
_DRIVER: Final = "largest.example.com"


def limit_findings(source: str, tree: ast.SyntaxNode, units: int) -> Iterator[LintFinding]:
    """Findings about an expression that compiles in `units`; its cost is measured on a device as large as the API allows."""
    if units > _COSTLY * COMPILE_LIMIT:
        message = f"compiling it takes {units} of {COMPILE_LIMIT} units that an expression may take"
        yield warning(LintCode.COMPILE_LIMIT, 0, message)
    length = len(source.encode(errors="surrogatepass"))
    if length > _NEAR * MAX_LENGTH:
        yield warning(LintCode.LENGTH_LIMIT, 0, f"it has {length} of {MAX_LENGTH} bytes that an expression may have")
    evaluation = Evaluation(source, _largest_device(tree))
    outcome = evaluation.outcome(evaluation.root)
    if outcome.stopped:
        yield error(LintCode.COST_LIMIT, 0, f"on a device with {_ATTRIBUTES} attributes it is stopped: {outcome.error}")
    elif evaluation.cost > _COSTLY * COST_LIMIT:
        message = f"on a device with {_ATTRIBUTES} attributes it costs {evaluation.cost} of {COST_LIMIT} units"
        yield warning(LintCode.COST_LIMIT, 0, message)


def claim_limit_findings(units: int) -> Iterator[LintFinding]:
    """Findings about the different expressions of a claim, which together compile in `units`."""
    message = (
        f"compiling the expressions of the claim takes {units} of {CLAIM_COMPILE_LIMIT} units that a claim may take"
    )
    if units > CLAIM_COMPILE_LIMIT:
        yield error(LintCode.COMPILE_LIMIT, 0, message)
    elif units > _COSTLY * CLAIM_COMPILE_LIMIT:
        yield warning(LintCode.COMPILE_LIMIT, 0, message)


def _largest_device(tree: ast.SyntaxNode) -> DeviceActivation:
    """A device with what the expression reads and as many further attributes as the API allows."""
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
