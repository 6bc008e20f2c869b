"""All chosen mutations in one compiled program, each behind a switch, so that a mutant needs no process start of its own."""

import ast
import builtins
import copy
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any, Final

from tests.mutants.mutations import ROOT, Mutation, changes_of

_SWITCH: Final = "__mutant__"


class Switches:
    """Says which mutants are active, and notes which switches were asked."""

    def __init__(self) -> None:
        self.active: frozenset[int] = frozenset()
        self.reached: set[int] = set()

    def is_active(self, number: int) -> bool:
        """Return whether the mutant with this number is active; compiled modules call it."""
        self.reached.add(number)
        return number in self.active


def install(mutations: Iterable[Mutation]) -> Switches:
    """Have the product's modules compiled with the mutations, numbered in this order; none may be imported yet."""
    by_path: dict[str, dict[Mutation, int]] = defaultdict(dict)
    for number, mutation in enumerate(mutations):
        by_path[mutation.path][mutation] = number
    switches = Switches()
    setattr(builtins, _SWITCH, switches.is_active)
    sys.meta_path.insert(0, _Finder({_module(path): (path, numbers) for path, numbers in by_path.items()}))
    return switches


def _module(path: str) -> str:
    return ".".join(Path(path).relative_to("app").with_suffix("").parts).removesuffix(".__init__")


class _Finder(MetaPathFinder):
    def __init__(self, modules: Mapping[str, tuple[str, Mapping[Mutation, int]]]) -> None:
        self._modules = modules

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module with mutations; None for any other."""
        if fullname not in self._modules:
            return None
        file, numbers = self._modules[fullname]
        return spec_from_file_location(fullname, ROOT / file, loader=_Loader(fullname, str(ROOT / file), numbers))


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, numbers: Mapping[Mutation, int]) -> None:
        super().__init__(name, path)
        self._numbers = numbers

    def path_stats(self, path: str) -> dict[str, float]:
        """Refuse to say when the file was written, so that no compiled module is read or kept."""
        raise OSError(path)

    def source_to_code(self, data: Any, path: Any, *_: Any, **__: Any) -> CodeType:  # type: ignore[override]  # static above
        """Return the code with a switch at each mutated node."""
        tree = ast.parse(data)
        changes: dict[ast.AST, list[tuple[int, ast.expr | None]]] = defaultdict(list)
        for mutation, node, changed in changes_of(Path(path), data, tree):
            if mutation in self._numbers:
                changes[node].append((self._numbers[mutation], copy.deepcopy(changed)))
        switched = ast.fix_missing_locations(_Switching(changes).visit(tree))
        code: CodeType = compile(switched, path, "exec", dont_inherit=True)
        return code


class _Switching(ast.NodeTransformer):
    """Replaces `value` by `changed if __mutant__(number) else value`."""

    def __init__(self, changes: Mapping[ast.AST, list[tuple[int, ast.expr | None]]]) -> None:
        self._changes = changes

    def visit(self, node: ast.AST) -> Any:
        """Return the node, or its replacement."""
        switched = self.generic_visit(node)
        for number, changed in self._changes.get(node, ()):
            if isinstance(switched, ast.Expr):
                switched = ast.Expr(self._either(number, ast.Constant(None), switched.value))
            else:
                assert changed is not None
                switched = self._either(number, changed, switched)
            ast.copy_location(switched, node)
        return switched

    @staticmethod
    def _either(number: int, changed: ast.expr, value: Any) -> ast.IfExp:
        asked = ast.Call(ast.Name(_SWITCH, ast.Load()), [ast.Constant(number)], [])
        return ast.IfExp(asked, changed, value)
