from typing import Any

from dra_extender.cel.program import compile_expression
from dra_extender.cel.support.errors import CelCompileError


def expression_problem(value: Any) -> str | None:
    """Why this is no CEL expression over a device that yields a boolean; None if it is one."""
    if not isinstance(value, str) or not value:
        return "expected a CEL expression as text"
    try:
        compile_expression(value)
    except CelCompileError as problem:
        return f"the expression does not compile: {problem.reason} (line {problem.line}, column {problem.column})"
    return None
