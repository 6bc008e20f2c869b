"""The canonical text of a syntax tree: as few parentheses as its meaning allows, double quotes, one blank around operators."""

import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar

from dra_extender.cel.syntax.ast import (
    BINARY_OPERATORS,
    INDEX_OPERATORS,
    LOGICAL,
    MACROS,
    MAX_DEPTH,
    NO_NAMES,
    CallExpression,
    Comprehension,
    Identifier,
    ListLiteral,
    Literal,
    Macro,
    MapLiteral,
    Select,
    SyntaxNode,
)
from dra_extender.cel.values.go_format import ESCAPES, SURROGATES
from dra_extender.cel.values.integers import Uint

_T = TypeVar("_T")
_TERNARY: Final = 0
_UNARY: Final = 6
_POSTFIX: Final = 7
_PRECEDENCE: Final = {
    "_?_:_": _TERNARY,
    **dict(BINARY_OPERATORS.values()),
    "!_": _UNARY,
    "-_": _UNARY,
}
_PLAIN_NAME: Final = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_MACRO_NAMES: Final = {macro: name for (name, _), macro in MACROS.items()}


def print_expression(node: SyntaxNode, characters: int | None = None) -> str:
    """Return the text of a tree; parsing it returns the same tree with other offsets.

    With a number of characters, what follows these in the text may be missing.
    """
    return _Printer(characters).text(node)


def text_literal(text: str) -> str:
    """Return a string as CEL writes it, in the quotes that need no escape, double ones if neither do."""
    quote = "'" if '"' in text and "'" not in text else '"'
    return quote + "".join(_character(character, quote) for character in text) + quote


def member_text(name: str) -> str:
    """Return a name as it is written after a dot: in backquotes if it is no identifier."""
    plain = _PLAIN_NAME.fullmatch(name) is not None and name not in NO_NAMES
    return name if plain else f"`{name}`"


def is_plain_name(name: str) -> bool:
    """Return whether a name can be written after a dot without backquotes."""
    return member_text(name) == name


def access_expression(device_map: str, domain: str | None, name: str) -> str:
    """Return the expression that reads an attribute or a capacity; the domain is `device.driver` by default."""
    key = "device.driver" if domain is None else text_literal(domain)
    path = f"device.{device_map}[{key}]"
    return f"{path}.{name}" if is_plain_name(name) else f"{path}[{text_literal(name)}]"


def _character(character: str, quote: str) -> str:
    if character == quote:
        return f"\\{character}"
    code = ord(character)
    if character in ESCAPES:
        return ESCAPES[character]
    if character.isprintable() or code in SURROGATES:
        return character
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004 - what four digits can say


class _Printer:
    """Prints trees; with a limit of characters it leaves out what cannot be among these."""

    def __init__(self, characters: int | None) -> None:
        self._characters = characters
        self._left = None if characters is None else 2 * characters + MAX_DEPTH

    def text(self, node: SyntaxNode) -> str:
        """Return the text of a node, or three dots beyond the limit."""
        if self._left is not None:
            if not self._left:
                return "..."
            self._left -= 1
        return self._RULES[type(node)](self, node)

    def _first(self, items: tuple[_T, ...]) -> tuple[_T, ...]:
        """Return as many items as the limit allows."""
        return items if self._left is None else items[: self._left + 1]

    def _at_least(self, node: SyntaxNode, lowest: int) -> str:
        """Return the text of an operand, in parentheses if it binds weaker than its place demands."""
        precedence = _POSTFIX
        if isinstance(node, CallExpression) and node.target is None:
            precedence = _PRECEDENCE.get(node.function, _POSTFIX)
        elif isinstance(node, Literal) and type(node.value) in {int, float} and str(node.value).startswith("-"):
            precedence = _UNARY
        return self.text(node) if precedence >= lowest else f"({self.text(node)})"

    def _literal(self, node: Literal) -> str:
        value = node.value
        if isinstance(value, str | bytes):
            value = value[: self._characters]
        if isinstance(value, str):
            return text_literal(value)
        if isinstance(value, bytes):
            shown = (chr(byte) if 0x20 <= byte < 0x7F and byte not in b'\\"' else f"\\x{byte:02x}" for byte in value)  # noqa: PLR2004 - printable ASCII
            return f'b"{"".join(shown)}"'
        if value is None:
            return "null"
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{int(value)}u" if isinstance(value, Uint) else repr(value)

    def _select(self, node: Select) -> str:
        text = f"{self._at_least(node.operand, _POSTFIX)}{'.?' if node.optional else '.'}{member_text(node.field)}"
        return f"has({text})" if node.test else text

    def _call(self, node: CallExpression) -> str:
        arguments = node.arguments
        if node.target is not None:
            return f"{self._at_least(node.target, _POSTFIX)}.{node.function}({self._listed(arguments)})"
        if node.function in INDEX_OPERATORS:
            mark = "?" if INDEX_OPERATORS[node.function] else ""
            return f"{self._at_least(arguments[0], _POSTFIX)}[{mark}{self.text(arguments[1])}]"
        if node.function == "_?_:_":
            condition, on_true, on_false = arguments
            return f"{self._at_least(condition, 1)} ? {self._at_least(on_true, 1)} : {self.text(on_false)}"
        own = _PRECEDENCE.get(node.function)
        if own is None:
            return f"{node.function}({self._listed(arguments)})"
        symbol = "in" if node.function == "@in" else node.function.strip("_")
        if own == _UNARY:
            text = self._at_least(arguments[0], _POSTFIX)
            # A minus in front of a digit would become part of the number.
            return f"-({text})" if symbol == "-" and text[0].isdigit() else symbol + text
        # A chain of one logical operator is one call; another such call among its operands was written in parentheses.
        left = self._at_least(arguments[0], own + 1 if node.function in LOGICAL else own)
        following = self._first(arguments[1:])
        return f" {symbol} ".join([left, *(self._at_least(operand, own + 1) for operand in following)])

    def _listed(self, nodes: tuple[SyntaxNode, ...]) -> str:
        return ", ".join(map(self.text, self._first(nodes)))

    def _list(self, node: ListLiteral) -> str:
        elements = (f"{'?' * item.optional}{self.text(item.value)}" for item in self._first(node.elements))
        return f"[{', '.join(elements)}]"

    def _map(self, node: MapLiteral) -> str:
        entries = (
            f"{'?' * item.optional}{self.text(item.key)}: {self.text(item.value)}" for item in self._first(node.entries)
        )
        return f"{{{', '.join(entries)}}}"

    def _comprehension(self, node: Comprehension) -> str:
        names = ", ".join(node.names)
        if node.kind == "bind":
            return f"cel.bind({names}, {self.text(node.source)}, {self.text(node.body)})"
        conditions = () if node.condition is None else (node.condition,)
        parts: tuple[SyntaxNode, ...] = (*conditions, node.body)
        macro = _MACRO_NAMES[Macro(node.kind, len(node.names), bool(conditions))]
        if macro == "map" and conditions and isinstance(node.body, Identifier) and node.body.name == node.names[0]:
            macro, parts = "filter", conditions
        return f"{self._at_least(node.source, _POSTFIX)}.{macro}({names}, {self._listed(parts)})"

    _RULES: ClassVar[Mapping[type[SyntaxNode], Callable[[Any, Any], str]]] = {
        Literal: _literal,
        Identifier: lambda _, node: node.name,
        Select: _select,
        CallExpression: _call,
        ListLiteral: _list,
        MapLiteral: _map,
        Comprehension: _comprehension,
    }
