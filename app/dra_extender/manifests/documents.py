"""YAML as people write it: read into JSON types, with the position of every field and the comments above every document.

Whatever the text is, reading it takes time in proportion to its length, and fails with nothing but a `YamlError`.
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

import msgspec
import yaml

from dra_extender.manifests.files import opened

FieldPath = tuple[str | int, ...]
"""Where a field is inside a document: names and list indexes."""

MOST_BYTES: Final = 2**20
"""The size of the longest file that `read_yaml` reads; a ConfigMap holds no more."""
MOST_VALUES: Final = 200_000
"""Values of a document with all aliases written out."""
MOST_DEPTH: Final = 64


class YamlBounds(NamedTuple):
    """The size that a text may have; reading ends where it has more.

    Attributes:
        values: Values of one document, as they are written, and with all aliases written out.
        items: Values in one list.
        documents: Documents of the text, empty ones included.
    """

    values: int = MOST_VALUES
    items: int = MOST_VALUES
    documents: int = MOST_BYTES


_ANY: Final = YamlBounds()
_LONGEST_NUMBER: Final = 64
_CORE: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset(f"{_CORE}{kind}" for kind in ("str", "binary", "timestamp", "value"))
_COLLECTION_TAGS: Final = frozenset(f"{_CORE}{kind}" for kind in ("map", "seq"))
_INTEGERS: Final = range(-(2**63), 2**64)


class Position(NamedTuple):
    """A place in a text; both numbers count from 1."""

    line: int
    column: int


class YamlError(ValueError):
    """The text cannot be read.  `reason` says what was expected; `position` is None where the place is not known."""

    def __init__(self, reason: str, position: Position | None = None) -> None:
        super().__init__(reason if position is None else f"{reason} (line {position.line}, column {position.column})")
        self.reason = reason
        self.position = position

    def located(self, file: str) -> str:
        """Return `file:line:column: reason`, as compilers print errors."""
        place = "" if self.position is None else f":{self.position.line}:{self.position.column}"
        return f"{file}{place}: {self.reason}"


class YamlDocument(msgspec.Struct, frozen=True):
    """One document: its value in JSON types, its nodes, the position of each path, and the comment lines above it without `#`."""

    value: Any
    root: yaml.Node
    positions: dict[FieldPath, Position]
    narration: tuple[str, ...] = ()

    def position_of(self, path: FieldPath = ()) -> Position:
        """Return the position of the field at this path, or of the nearest part that exists."""
        while path not in self.positions:
            path = path[:-1]
        return self.positions[path]

    def items(self) -> Iterator["YamlDocument"]:
        """Yield the `items` of a List, also those of Lists in it, as documents of their own without comments; else the document."""
        value = self.value
        if not (isinstance(value, dict) and value.get("kind") == "List" and isinstance(value.get("items"), list)):
            yield self
            return
        below: dict[str | int, dict[FieldPath, Position]] = {}
        for path, position in self.positions.items():
            if len(path) > 1 and path[0] == "items":
                below.setdefault(path[1], {})[path[2:]] = position
        for index, item in enumerate(value["items"]):
            root = node_at(self.root, ("items", index)) or self.root
            yield from YamlDocument(item, root, below.get(index) or {(): self.position_of(("items",))}).items()


def read_yaml(path: Path) -> list[Any]:
    """Return the values of the documents in this file, without empty ones.

    Raises:
        OSError: it cannot be opened.
        YamlError: as `load_yaml`.
    """
    with opened(path) as file:
        return load_yaml(file.read(MOST_BYTES + 1))


def load_yaml(data: bytes, bounds: YamlBounds = _ANY) -> list[Any]:
    """Return the values of the documents in this text, without empty ones.

    Raises:
        YamlError: as `load_documents`.
    """
    return [document.value for document in load_documents(data, bounds)]


def load_documents(data: bytes, bounds: YamlBounds = _ANY) -> list[YamlDocument]:
    """Return the documents in this text, without empty ones.

    Raises:
        YamlError: it is longer than MOST_BYTES, or not UTF-8; or as `read_documents`.
    """
    if len(data) > MOST_BYTES:
        raise YamlError(f"expected at most {MOST_BYTES} bytes")
    try:
        text = data.decode()
    except UnicodeDecodeError as problem:
        raise YamlError(f"expected YAML in UTF-8: {problem}") from problem
    return read_documents(text, bounds)


def read_documents(text: str, bounds: YamlBounds = _ANY) -> list[YamlDocument]:
    """Return the documents of a YAML text, without empty ones.

    Raises:
        YamlError: bad syntax; a key that is given twice or is no text; a value without JSON form; a value that contains itself; too
            many values, items or documents, too deep nesting.
    """
    try:
        loader = _Loader(text, bounds)
        try:
            return list(_documents(loader, text.splitlines()))
        except (OverflowError, ValueError) as problem:
            # Escapes and versions are numbers, which may be larger than any character and any number.
            if isinstance(problem, YamlError):
                raise
            raise YamlError(f"expected YAML: {problem}", _position(loader.get_mark())) from problem
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as problem:
        reason = " ".join(part for part in (problem.context, problem.problem) if part)
        mark = problem.problem_mark or problem.context_mark
        raise YamlError(f"expected YAML: {reason}", None if mark is None else _position(mark)) from problem
    except yaml.YAMLError as problem:
        raise YamlError(f"expected YAML: {' '.join(str(problem).split())}") from problem
    except RecursionError as problem:
        raise YamlError(f"expected at most {MOST_DEPTH} lists and mappings inside each other") from problem


def node_at(node: yaml.Node | None, path: FieldPath) -> yaml.Node | None:
    for step in path:
        if isinstance(node, yaml.MappingNode):
            node = next((child for key, child in reversed(node.value) if getattr(key, "value", None) == step), None)
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            node = node.value[step]
        else:
            return None
    return node


class _Loader(yaml.SafeLoader):
    """The safe loader, which refuses early what is beyond the bounds.

    It refuses deep nesting because its scanner takes time that grows with the square of the depth.
    """

    def __init__(self, text: str, bounds: YamlBounds) -> None:
        super().__init__(text)
        self.bounds = bounds
        self._documents = self._values = 0

    def compose_document(self) -> yaml.Node | None:
        self._documents, self._values = self._documents + 1, 0
        if self._documents > self.bounds.documents:
            self._refuse(f"{self.bounds.documents} documents")
        return super().compose_document()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        is_key = isinstance(parent, yaml.MappingNode) and index is None
        self._values += not is_key
        if self._values > self.bounds.values:
            self._refuse(f"{self.bounds.values} values")
        if isinstance(index, int) and index >= self.bounds.items:
            self._refuse(f"{self.bounds.items} items in a list")
        return super().compose_node(parent, index)

    def _refuse(self, limit: str) -> NoReturn:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # the stubs leave it out
        raise YamlError(f"expected at most {limit}", _position(event.start_mark))

    def fetch_flow_collection_start(self, token: Any) -> None:
        self._check_depth(self.flow_level)
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> Any:
        self._check_depth(len(self.indents))
        return super().add_indent(column)

    def _check_depth(self, depth: int) -> None:
        if depth >= MOST_DEPTH:
            raise YamlError(
                f"expected at most {MOST_DEPTH} lists and mappings inside each other", _position(self.get_mark())
            )


def _documents(loader: _Loader, lines: Sequence[str]) -> Iterator[YamlDocument]:
    while loader.check_node():
        root = loader.get_node()
        if root is None:
            break
        _SizeCheck(loader.bounds.values).size(root)
        reader = _Reader(loader)
        value = reader.read(root, ())
        if value is not None:
            yield YamlDocument(value, root, reader.positions, _comments_above(lines, root.start_mark.line))


def _comments_above(lines: Sequence[str], first: int) -> tuple[str, ...]:
    """Return the comment lines that start in the first column, up to the content before; blank lines between them stay."""
    comment_lines: list[str] = []
    for index in range(first - 1, -1, -1):
        stripped = lines[index].rstrip()
        if stripped.startswith("#"):
            comment_lines.append(stripped[1:].removeprefix(" "))
        elif not stripped:
            comment_lines.append("")
        elif stripped != "---":
            break
    return tuple("\n".join(reversed(comment_lines)).strip("\n").splitlines())


class _SizeCheck:
    """Counts the values of one document with aliases written out, before any of them is."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values
        self._sizes: dict[int, int] = {}

    def size(self, node: yaml.Node) -> int:
        """Return how many values the node holds, itself included.

        Raises:
            YamlError: they are too many, one contains itself, or a key is repeated or no text.
        """
        size = self._sizes.get(id(node))
        if size == 0:
            raise YamlError("expected no value that contains itself", _position(node.start_mark))
        if size is None:
            self._sizes[id(node)] = 0
            size = self._sizes[id(node)] = 1 + sum(map(self.size, _children(node)))
        if size > self._max_values:
            raise YamlError(
                f"expected at most {self._max_values} values, aliases written out", _position(node.start_mark)
            )
        return size


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise YamlError("expected a text as key", _position(key.start_mark))
            if _unicode(key) in keys:
                raise YamlError(f"expected each key once, got {key.value!r} again", _position(key.start_mark))
            keys.add(key.value)
            yield value


class _Reader:
    """Turns the nodes of a document into JSON types and notes the position of every path."""

    def __init__(self, loader: _Loader) -> None:
        self._loader = loader
        self.positions: dict[FieldPath, Position] = {}

    def read(self, node: yaml.Node, path: FieldPath) -> Any:
        self.positions.setdefault(path, _position(node.start_mark))
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        if node.tag not in _COLLECTION_TAGS:
            raise YamlError(f"expected a plain list or mapping, got the tag {node.tag}", _position(node.start_mark))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        return [self.read(item, (*path, index)) for index, item in enumerate(node.value)]

    def _mapping(self, node: yaml.MappingNode, path: FieldPath) -> dict[str, Any]:
        self._loader.flatten_mapping(node)
        value: dict[str, Any] = {}
        for key, child in node.value:
            below = (*path, key.value)
            self.positions[below] = _position(key.start_mark)
            value[key.value] = self.read(child, below)
        return value

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        if node.tag in _TEXT_TAGS:
            return _unicode(node)
        position = _position(node.start_mark)
        if len(node.value) > _LONGEST_NUMBER:
            # Numbers to base 60 take time that grows with the square of their length.
            raise YamlError(
                f"expected a number or the like of at most {_LONGEST_NUMBER} characters, got {len(node.value)}",
                position,
            )
        try:
            value = self._loader.construct_object(node)
        except (ValueError, LookupError, AttributeError, OverflowError) as problem:
            # An empty number has no sign to look at, a bool that is none no meaning.
            raise YamlError(f"expected a value of the tag {node.tag}, got {node.value!r}", position) from problem
        match value:
            case None | str():
                return value
            case int() if value in _INTEGERS:
                return value
            case float() if math.isfinite(value):
                return value
        raise YamlError(f"expected a value that JSON knows, got {node.value!r}", position)


def _unicode(node: yaml.ScalarNode) -> str:
    """Return the text of a scalar.

    Raises:
        YamlError: an escape stands for half of a UTF-16 pair, which no JSON has.
    """
    text = str(node.value)
    try:
        text.encode()
    except UnicodeEncodeError as problem:
        raise YamlError(
            "expected characters of Unicode, got half of a UTF-16 pair", _position(node.start_mark)
        ) from problem
    return text


def _position(mark: yaml.Mark) -> Position:
    return Position(mark.line + 1, mark.column + 1)


_BLOCKS: Final = frozenset({"|", ">"})
_BLANK_ESCAPES: Final = frozenset(" \tntrvfN_LP")
_DIGITS: Final = {"x": 2, "u": 4, "U": 8}


class ScalarPosition(msgspec.Struct, frozen=True):
    """A scalar as it stands in the file: its text with quotes or block header, from `line` and `column`, both from 1.

    `style` is `'`, `"`, `|`, `>` or None for a plain scalar.
    """

    raw: str
    style: str | None
    line: int
    column: int

    def place(self, value: str, offset: int) -> tuple[int, int]:
        """Return line and column of a character of the value.

        YAML folds blanks and resolves escapes but keeps everything else, so the characters that are no blanks are counted.
        """
        solid_count = sum(not character.isspace() for character in value[:offset])
        index = end = 0
        for count, (index, end) in enumerate(_solids(self.raw, self.style)):  # noqa: B007 - used below if the value ends before
            if count == solid_count:
                return self._at(index)
        return self._at(end)

    def _at(self, index: int) -> tuple[int, int]:
        last = self.raw.rfind("\n", 0, index)
        if last < 0:
            return self.line, self.column + index
        return self.line + self.raw.count("\n", 0, index), index - last


def written(text: str, node: yaml.ScalarNode) -> ScalarPosition:
    """Return the scalar of a composed node of this text."""
    mark = node.start_mark
    return ScalarPosition(text[mark.index : node.end_mark.index], node.style, mark.line + 1, mark.column + 1)


def _solids(raw: str, style: str | None) -> Iterator[tuple[int, int]]:
    """Yield begin and end of what stands for each character that is no blank."""
    index = 0
    end = len(raw)
    if style in _BLOCKS:
        index = raw.find("\n") + 1
    elif style is not None:
        index, end = 1, end - 1
    while index < end:
        width, solid = _next(raw, index, style)
        if solid:
            yield index, index + width
        index += width


def _next(raw: str, index: int, style: str | None) -> tuple[int, bool]:
    """Return how long the next character's spelling is, and whether it is more than a blank."""
    character = raw[index]
    if style == "'" and character == "'":
        return 2, True
    if style != '"' or character != "\\":
        return 1, not character.isspace()
    kind = raw[index + 1]
    if kind in _DIGITS:
        digits = raw[index + 2 : index + 2 + _DIGITS[kind]]
        return 2 + len(digits), not chr(int(digits, 16)).isspace()
    return 2, kind not in _BLANK_ESCAPES and not kind.isspace()
