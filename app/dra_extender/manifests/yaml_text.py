"""YAML as people write it for this program, read so that nothing in it but a `YamlError` can come of it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

MOST_BYTES: Final = 2**20
"""As much as a ConfigMap holds."""
MOST_NODES: Final = 100_000
"""Values with all aliases written out."""
MOST_DEPTH: Final = 64
_LONGEST_NUMBER: Final = 64
_TEXTS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:binary")


class YamlError(ValueError):
    """The text cannot be read; the message says what was expected, and where as far as that is known."""


def read_yaml(path: Path) -> list[Any]:
    """The documents in this file, without empty ones.

    Raises:
        OSError: it cannot be opened.
        YamlError: it is too long, not UTF-8, not YAML, or has a value that is none: a date that does not exist, a number of
            thousands of digits, one key twice, aliases that stand for too much.
    """
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise YamlError(f"expected at most {MOST_BYTES} bytes")
    try:
        return load_yaml(data.decode())
    except UnicodeDecodeError as problem:
        raise YamlError(f"expected YAML in UTF-8: {problem}") from problem


def load_yaml(text: str) -> list[Any]:
    """As `read_yaml`, from a text."""
    try:
        return [each for each in _documents(text) if each is not None]
    except (yaml.YAMLError, ValueError, OverflowError, TypeError) as problem:
        raise YamlError(f"expected YAML: {' '.join(str(problem).split())}") from problem
    except RecursionError as problem:
        raise YamlError("expected YAML: it nests too deeply") from problem


class _Loader(yaml.SafeLoader):
    """The safe loader, which names the place of a value that cannot be made, and takes no key twice."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        self._check_depth(self.flow_level)
        super().fetch_flow_collection_start(token)

    def add_indent(self, column: int) -> Any:
        self._check_depth(len(self.indents))
        return super().add_indent(column)

    def _check_depth(self, depth: int) -> None:
        """The scanner takes time that grows with the square of the depth."""
        if depth >= MOST_DEPTH:
            problem = f"more than {MOST_DEPTH} lists and mappings in each other"
            raise yaml.scanner.ScannerError(problem=problem, problem_mark=self.get_mark())

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        if isinstance(node, yaml.ScalarNode) and node.tag not in _TEXTS and len(node.value) > _LONGEST_NUMBER:
            # Numbers to base 60 take time that grows with the square of their length.
            problem = f"a number, date or the like of {len(node.value)} characters"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        try:
            return super().construct_object(node, deep)
        except LookupError as problem:
            # An empty number has no sign to look at, a bool that is none no meaning.
            raise yaml.constructor.ConstructorError(
                problem=f"{node.value!r} is no value of the tag {node.tag}", problem_mark=node.start_mark
            ) from problem
        except (ValueError, OverflowError, AttributeError) as problem:
            # A date that does not exist, for example.
            raise yaml.constructor.ConstructorError(problem=str(problem), problem_mark=node.start_mark) from problem


def _documents(text: str) -> Iterator[Any]:
    loader = _Loader(text)
    try:
        while loader.check_node():
            root = loader.get_node()
            if root is None:
                return
            _Checked().size(root)
            yield loader.construct_document(root)
    finally:
        loader.dispose()


class _Checked:
    """Sizes of the nodes of one document, with aliases written out."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}

    def size(self, node: yaml.Node) -> int:
        """How many values there are in the node.  Raises YAMLError: too many, one that holds itself, a doubled key."""
        known = self._sizes.get(id(node))
        if known == 0:
            raise yaml.composer.ComposerError(problem="a value that holds itself", problem_mark=node.start_mark)
        if known is None:
            self._sizes[id(node)] = 0
            known = self._sizes[id(node)] = 1 + sum(map(self.size, _parts(node)))
        if known > MOST_NODES:
            problem = f"more than {MOST_NODES} values, aliases written out"
            raise yaml.composer.ComposerError(problem=problem, problem_mark=node.start_mark)
        return known


def _parts(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode):
                if (key.tag, key.value) in seen:
                    problem = f"the key {key.value!r} a second time"
                    raise yaml.composer.ComposerError(problem=problem, problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
            yield key
            yield value
