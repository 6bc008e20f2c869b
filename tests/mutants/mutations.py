"""Mutations of Python source: small changes that a good test notices."""

import ast
import copy
import random
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "dra_extender"

_OTHER_COMPARISON: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHER_OPERATOR: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.FloorDiv: ast.Mult,
}
_LOGGERS: Final = frozenset({"_LOG", "_log"})


class Mutation(NamedTuple):
    """One change: the text between two byte offsets of a file becomes another text.

    `path` is relative to the repository.
    """

    path: str
    line: int
    kind: str
    begin: int
    end: int
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.kind}: {' '.join(self.before.split())} -> {self.after}"


def choose(packages: Sequence[str], count: int, seed: int) -> list[Mutation]:
    """Return `count` mutations of these packages, as many of each line of code as of any other, the same for the same seed."""
    paths = sorted(file for package in packages for file in (PACKAGE / package).rglob("*.py"))
    sites = [mutation for path in paths for mutation in mutations_of(path)]
    return sorted(random.Random(seed).sample(sites, min(count, len(sites))))


def mutations_of(path: Path) -> Iterator[Mutation]:
    """Return every mutation of one file; none changes an annotation, a docstring, a log line or text for people."""
    source = path.read_bytes()
    return (mutation for mutation, _, _ in changes_of(path, source, ast.parse(source)))


def changes_of(
    path: Path, source: bytes, tree: ast.Module
) -> Iterator[tuple[Mutation, ast.expr | ast.Expr, ast.expr | None]]:
    """Yield every mutation of this source with the node of the tree that it changes, and what the node becomes.

    None removes the node, a statement.
    """
    starts = [0]
    for text in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(text))
    for node in _code(tree):
        for kind, changed in _changes(node):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)
            after = "pass" if changed is None else f"({ast.unparse(changed)})"
            before = source[begin:end].decode()
            relative = path.relative_to(ROOT).as_posix()
            yield Mutation(relative, node.lineno, kind, begin, end, before, after), node, changed


def with_mutations(source: bytes, mutations: Iterable[Mutation]) -> bytes:
    """Return the source with these mutations, without those that lie within another or overlap it."""
    begin = len(source)
    for mutation in sorted(mutations, key=lambda mutation: mutation.begin, reverse=True):
        if mutation.end <= begin:
            source = source[: mutation.begin] + mutation.after.encode() + source[mutation.end :]
            begin = mutation.begin
    return source


def _code(node: ast.AST) -> Iterator[ast.expr | ast.Expr]:
    """Yield the expressions and calls whose results decide something."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"} or (
            name == "keywords" and isinstance(node, ast.ClassDef)
        ):
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.pattern) or _is_for_people(child):
                continue
            if isinstance(child, ast.expr | ast.Expr):
                yield child
            yield from _code(child)


def _is_for_people(node: ast.AST) -> bool:
    # Positions inside an f-string are those of the whole string in Python 3.11.
    if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
        return True
    if not isinstance(node, ast.Expr):
        return False
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    if not isinstance(call, ast.Call):
        return not isinstance(node.value, ast.Yield | ast.YieldFrom | ast.Await)
    function = call.func
    return (
        isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name) and function.value.id in _LOGGERS
    )


def _changes(node: ast.expr | ast.Expr) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield what the node may become, with the kind of the change; None removes a statement."""
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield "call removed", None
        case ast.Compare(ops=[first, *_]):
            changed = copy.deepcopy(node)
            changed.ops[0] = _OTHER_COMPARISON[type(first)]()
            yield "other comparison", changed
        case ast.BoolOp(op=ast.And(), values=values):
            yield "and for or", ast.BoolOp(ast.Or(), values)
            yield "condition left out", values[-1]
        case ast.BoolOp(op=ast.Or(), values=values):
            yield "or for and", ast.BoolOp(ast.And(), values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not left out", operand
        case ast.BinOp(op=operator) if type(operator) in _OTHER_OPERATOR:
            yield "other operator", ast.BinOp(node.left, _OTHER_OPERATOR[type(operator)](), node.right)
        case ast.Constant(value=bool() as value):
            yield "other truth", ast.Constant(not value)
        case ast.Constant(value=int() as value):
            yield "other number", ast.Constant(value + 1)
        case ast.IfExp(test=test, body=body, orelse=orelse):
            yield "branches swapped", ast.IfExp(test, orelse, body)
