"""A precedence-climbing parser.  It recurses only into nested expressions, and their depth is limited.

Macros are calls whose arguments are names and unevaluated expressions rather than values; they are recognised, not expanded.
"""

import math
from collections.abc import Callable
from typing import Final, TypeVar

from dra_extender.cel.budget import CompileMeter
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.syntax.ast import (
    BINARY_OPERATORS,
    LOGICAL,
    MACROS,
    MAX_DEPTH,
    NO_NAMES,
    CallExpression,
    Comprehension,
    Element,
    Entry,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
    SyntaxNode,
    depth_above,
)
from dra_extender.cel.syntax.lexer import Token, integer_value, string_value, tokenize

_HIDDEN: Final = "__result__"


def expand(
    source: str, function: str, target: SyntaxNode | None, arguments: tuple[SyntaxNode, ...], offset: int
) -> SyntaxNode | None:
    """Turn a macro call into what it means, or return None when the call is not a macro."""
    if target is None:
        if function != "has" or len(arguments) != 1:
            return None
        selection = arguments[0]
        # A presence test is a selection, too: `has(has(a.b))` is `has(a.b)`, as in cel-go.
        if not isinstance(selection, Select) or selection.optional:
            raise CelCompileError("invalid argument to has() macro", source, selection.offset)
        return Select(selection.offset, selection.depth, selection.operand, selection.field, test=True)
    if function == "bind" and isinstance(target, Identifier) and target.name == "cel":
        if len(arguments) != 3:  # noqa: PLR2004 - cel.bind(name, value, body)
            return None
        name, value, body = arguments
        return Comprehension(offset, depth_above(value, body), "bind", value, (_name(source, name),), None, body)
    if function == "filter" and len(arguments) == 2:  # noqa: PLR2004 - x.filter(name, condition) is x.map(name, condition, name)
        function, arguments = "map", (*arguments, arguments[0])
    macro = MACROS.get((function, len(arguments)))
    if macro is None:
        return None
    names = tuple(_name(source, argument) for argument in arguments[: macro.variables])
    if len(set(names)) < macro.variables:
        raise CelCompileError(f"duplicate variable name: {names[0]}", source, arguments[1].offset)
    condition = arguments[macro.variables] if macro.filtered else None
    body = arguments[-1]
    return Comprehension(offset, depth_above(target, condition, body), macro.kind, target, names, condition, body)


def _name(source: str, argument: SyntaxNode) -> str:
    if not isinstance(argument, Identifier) or argument.name.startswith("."):
        raise CelCompileError("argument must be a simple name", source, argument.offset)
    if argument.name == _HIDDEN:
        raise CelCompileError("iteration variable overwrites accumulator variable", source, argument.offset)
    return argument.name


def dotted_name(target: SyntaxNode | None) -> str | None:
    """Return the dotted name that a chain of selections spells, such as "optional" or "a.b", else None."""
    names: list[str] = []
    node = target
    while isinstance(node, Select) and not node.optional and not node.test:
        names.append(node.field)
        node = node.operand
    if not isinstance(node, Identifier):
        return None
    return ".".join([node.name, *reversed(names)])


def qualified_call(call: CallExpression) -> str | None:
    """Return the full name of `a.b.f(...)` if its target spells a namespace, for example "sets.contains"."""
    prefix = dotted_name(call.target)
    return None if prefix is None else f"{prefix}.{call.function}"


MAX_LENGTH: Final = 10 * 1024
"""Longest accepted expression in UTF-8 bytes, as in the API (CELSelectorExpressionMaxLength)."""

_T = TypeVar("_T")
_MAX_NESTING: Final = 60
_PREFIXES: Final = frozenset("!-")
_KEYWORDS: Final = {"true": True, "false": False, "null": None}
_NAMES: Final = frozenset({"name", "quoted"})
_RESERVED: Final = frozenset(
    {
        *("as", "break", "const", "continue", "else", "for", "function", "if", "import"),
        *("let", "loop", "namespace", "package", "return", "var", "void", "while"),
    }
)


def parse(source: str, meter: CompileMeter | None = None) -> SyntaxNode:
    """Parse an expression and recognise its macros; `meter` is shared by all stages of compiling it."""
    if len(source.encode(errors="surrogatepass")) > MAX_LENGTH:
        raise CelCompileError(f"the expression is longer than {MAX_LENGTH} bytes", source, 0)
    parser = _Parser(source, CompileMeter(source) if meter is None else meter)
    node = parser.expression()
    parser.expect_end()
    return node


class _Parser:
    def __init__(self, source: str, meter: CompileMeter) -> None:
        self._source = source
        self._tokens = tokenize(source, meter)
        self._position = 0
        self._token = self._tokens[0]
        self._nesting = 0

    def expression(self) -> SyntaxNode:
        self._nesting += 1
        if self._nesting > _MAX_NESTING:
            raise self._error(f"the expression is nested deeper than {_MAX_NESTING} levels")
        node = self._binary(1)
        question = self._token
        if question.text == "?":
            self._advance()
            chosen = self._binary(1)
            self._expect(":")
            node = self._call("_?_:_", question.offset, node, chosen, self.expression())
        self._nesting -= 1
        return node

    def expect_end(self) -> None:
        if self._token.kind != "end":
            raise self._unexpected("the end of the expression")

    def _advance(self) -> None:
        self._position += 1
        self._token = self._tokens[self._position]

    def _error(self, message: str, offset: int | None = None) -> CelCompileError:
        return CelCompileError(message, self._source, self._token.offset if offset is None else offset)

    def _unexpected(self, expected: str) -> CelCompileError:
        shown = repr(self._token.text) if self._token.kind != "end" else "the end of the expression"
        return self._error(f"Syntax error: found {shown}, expected {expected}")

    def _accept(self, symbol: str) -> Token | None:
        token = self._token
        if token.text != symbol:
            return None
        self._position += 1
        self._token = self._tokens[self._position]
        return token

    def _expect(self, symbol: str) -> Token:
        token = self._accept(symbol)
        if token is None:
            raise self._unexpected(repr(symbol))
        return token

    def _require_depth(self, node: SyntaxNode) -> SyntaxNode:
        if node.depth > MAX_DEPTH:
            raise self._error(f"the expression is nested deeper than {MAX_DEPTH} levels", node.offset)
        return node

    def _call(self, function: str, offset: int, *arguments: SyntaxNode) -> SyntaxNode:
        return self._require_depth(CallExpression(offset, depth_above(*arguments), function, None, arguments))

    def _binary(self, lowest: int) -> SyntaxNode:
        token = self._token
        left = self._prefixed(token) if token.text in _PREFIXES else self._postfix(self._primary())
        while True:
            token = self._token
            function, precedence = BINARY_OPERATORS.get(token.text, ("", 0))
            if precedence < lowest:
                return left
            terms = [left]
            while self._token.text == token.text and (len(terms) == 1 or function in LOGICAL):
                self._advance()
                terms.append(self._binary(precedence + 1))
            left = self._call(function, token.offset, *terms)

    def _prefixed(self, first: Token) -> SyntaxNode:
        """Parse prefixes.  As in upstream, `!!x` and `--x` are x, whatever its type."""
        count = 0
        while self._accept(first.text) is not None:
            count += 1
        number = self._token
        signed = number.kind == "double" or (number.kind == "integer" and number.text[-1] not in "uU")
        if first.text == "-" and count == 1 and signed:
            self._advance()
            return self._postfix(self._number(number, negative=True))
        operand = self._postfix(self._primary())
        return self._call(f"{first.text}_", first.offset, operand) if count % 2 else operand

    def _postfix(self, node: SyntaxNode) -> SyntaxNode:
        while True:
            token = self._token
            text = token.text
            if text == ".":
                self._advance()
                node = self._member(node, token.offset)
                if node.depth > MAX_DEPTH:
                    self._require_depth(node)
            elif text == "[":
                self._advance()
                function = "_[?_]" if self._accept("?") is not None else "_[_]"
                key = self.expression()
                self._expect("]")
                node = self._call(function, token.offset, node, key)
            elif text == "{" and isinstance(node, Identifier | Select):
                raise self._error("messages cannot be constructed in this environment")
            else:
                return node

    def _member(self, operand: SyntaxNode, offset: int) -> SyntaxNode:
        optional = self._accept("?") is not None
        token = self._token
        name = token.text
        if token.kind not in _NAMES or name in NO_NAMES:
            raise self._unexpected("a name")
        self._advance()
        if self._token.text == "(" and token.kind == "name" and not optional:
            self._advance()
            arguments = tuple(self._list_of(self.expression, ")"))
            expanded = expand(self._source, name, operand, arguments, offset)
            return expanded or CallExpression(offset, depth_above(operand, *arguments), name, operand, arguments)
        return Select(offset, operand.depth + 1, operand, name.strip("`"), optional)

    def _primary(self) -> SyntaxNode:
        token = self._token
        if token.kind == "name":
            return self._named(token)
        if token.kind in {"integer", "double"}:
            self._advance()
            return self._number(token, negative=False)
        if token.kind == "string":
            self._advance()
            try:
                return Literal(token.offset, 1, string_value(token.text))
            except ValueError as error:
                raise self._error(str(error), token.offset) from None
        if self._accept("(") is not None:
            node = self.expression()
            self._expect(")")
            return node
        if self._accept("[") is not None:
            elements = tuple(self._list_of(self._element, "]"))
            return ListLiteral(token.offset, depth_above(*(item.value for item in elements)), elements)
        if self._accept("{") is not None:
            entries = tuple(self._list_of(self._entry, "}"))
            children = [child for entry in entries for child in (entry.key, entry.value)]
            return MapLiteral(token.offset, depth_above(*children), entries)
        if self._accept(".") is not None and self._token.kind == "name" and self._token.text not in _KEYWORDS:
            return self._named(self._token)
        raise self._unexpected("an expression")

    def _named(self, token: Token) -> SyntaxNode:
        self._advance()
        if token.text in _KEYWORDS:
            return Literal(token.offset, 1, _KEYWORDS[token.text])
        if token.text == "in":
            raise self._error("Syntax error: found 'in', expected an expression", token.offset)
        if self._accept("(") is not None:
            arguments = tuple(self._list_of(self.expression, ")"))
            expanded = expand(self._source, token.text, None, arguments, token.offset)
            return expanded or CallExpression(token.offset, depth_above(*arguments), token.text, None, arguments)
        if token.text in _RESERVED:
            raise self._error(f"reserved identifier: {token.text}", token.offset)
        return Identifier(token.offset, 1, token.text)

    def _number(self, token: Token, *, negative: bool) -> SyntaxNode:
        if token.kind == "double":
            double = float(token.text)
            if math.isinf(double):
                raise self._error("invalid double literal: it is too large", token.offset)
            return Literal(token.offset, 1, -double if negative else double)
        try:
            return Literal(token.offset, 1, integer_value(token.text, negative=negative))
        except ValueError as error:
            raise self._error(str(error), token.offset) from None

    def _element(self) -> Element:
        optional = self._accept("?") is not None
        return Element(self.expression(), optional)

    def _entry(self) -> Entry:
        optional = self._accept("?") is not None
        key = self.expression()
        self._expect(":")
        return Entry(key, self.expression(), optional)

    def _list_of(self, item: Callable[[], _T], closing: str) -> list[_T]:
        items: list[_T] = []
        if closing != ")" and self._accept(",") is not None:
            self._expect(closing)
            return items
        while self._accept(closing) is None:
            items.append(item())
            if self._accept(",") is None:
                self._expect(closing)
                break
            if closing == ")" and self._token.text == ")":
                raise self._unexpected("an argument")
        return items
