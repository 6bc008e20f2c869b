"""Macros: calls whose arguments are names and unevaluated expressions rather than values."""

from collections.abc import Callable
from typing import Final

from dra_extender.cel.support.errors import CelCompileError
from dra_extender.cel.syntax.ast import CallExpression, Comprehension, Identifier, Select, SyntaxNode, depth_above

_Expansion = Callable[[str, SyntaxNode, tuple[SyntaxNode, ...], int], SyntaxNode]
_HIDDEN: Final = "__result__"


def expand(
    source: str, function: str, target: SyntaxNode | None, arguments: tuple[SyntaxNode, ...], offset: int
) -> SyntaxNode | None:
    """Turn a macro call into what it means, or return None when the call is not a macro.

    Raises:
        CelCompileError: It is one, but an argument is not what the macro needs.
    """
    if target is None:
        if function == "has" and len(arguments) == 1:
            return _presence_test(source, arguments[0])
        return None
    if function == "bind" and isinstance(target, Identifier) and target.name == "cel":
        return _bind(source, arguments, offset) if len(arguments) == 3 else None  # noqa: PLR2004 - cel.bind(name, value, body)
    expansion = _RECEIVER.get((function, len(arguments)))
    return None if expansion is None else expansion(source, target, arguments, offset)


def _presence_test(source: str, argument: SyntaxNode) -> SyntaxNode:
    # A presence test is a selection, too: `has(has(a.b))` is `has(a.b)`, as in cel-go.
    if not isinstance(argument, Select) or argument.optional:
        raise CelCompileError("invalid argument to has() macro", source, argument.offset)
    return Select(argument.offset, argument.depth, argument.operand, argument.field, test=True)


def _bind(source: str, arguments: tuple[SyntaxNode, ...], offset: int) -> SyntaxNode:
    name, value, body = arguments
    names = (_name(source, name),)
    return Comprehension(offset, depth_above(value, body), "bind", value, names, None, body)


def _loop(kind: str, variables: int, *, filtered: bool = False) -> _Expansion:
    def expansion(source: str, target: SyntaxNode, arguments: tuple[SyntaxNode, ...], offset: int) -> SyntaxNode:
        names = tuple(_name(source, argument) for argument in arguments[:variables])
        if len(set(names)) < variables:
            raise CelCompileError(f"duplicate variable name: {names[0]}", source, arguments[1].offset)
        condition = arguments[variables] if filtered else None
        body = arguments[-1]
        return Comprehension(offset, depth_above(target, condition, body), kind, target, names, condition, body)

    return expansion


def _filter(source: str, target: SyntaxNode, arguments: tuple[SyntaxNode, ...], offset: int) -> SyntaxNode:
    variable, condition = arguments
    names = (_name(source, variable),)
    return Comprehension(offset, depth_above(target, condition), "list", target, names, condition, variable)


def _name(source: str, argument: SyntaxNode) -> str:
    if not isinstance(argument, Identifier) or argument.name.startswith("."):
        raise CelCompileError("argument must be a simple name", source, argument.offset)
    if argument.name == _HIDDEN:
        raise CelCompileError("iteration variable overwrites accumulator variable", source, argument.offset)
    return argument.name


_RECEIVER: Final[dict[tuple[str, int], _Expansion]] = {
    ("all", 2): _loop("all", 1),
    ("all", 3): _loop("all", 2),
    ("exists", 2): _loop("exists", 1),
    ("exists", 3): _loop("exists", 2),
    ("exists_one", 2): _loop("exists_one", 1),
    ("exists_one", 3): _loop("exists_one", 2),
    ("existsOne", 3): _loop("exists_one", 2),
    ("map", 2): _loop("list", 1),
    ("map", 3): _loop("list", 1, filtered=True),
    ("filter", 2): _filter,
    ("transformList", 3): _loop("list", 2),
    ("transformList", 4): _loop("list", 2, filtered=True),
    ("transformMap", 3): _loop("map", 2),
    ("transformMap", 4): _loop("map", 2, filtered=True),
    ("transformMapEntry", 3): _loop("entries", 2),
    ("transformMapEntry", 4): _loop("entries", 2, filtered=True),
    ("sortBy", 2): _loop("sort", 1),
    ("optMap", 2): _loop("opt_map", 1),
    ("optFlatMap", 2): _loop("opt_flat_map", 1),
}


def dotted_name(target: SyntaxNode | None) -> str | None:
    """The dotted name that a chain of selections spells, such as "optional" or "a.b", else None."""
    names: list[str] = []
    node = target
    while isinstance(node, Select) and not node.optional and not node.test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    return ".".join([node.name, *reversed(names)])


def qualified_call(call: CallExpression) -> str | None:
    """The full name of `a.b.f(...)` if its target spells a namespace, for example "sets.contains"."""
    prefix = dotted_name(call.target)
    return None if prefix is None else f"{prefix}.{call.function}"
