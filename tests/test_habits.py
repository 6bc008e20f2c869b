"""How tests wait, and how they look at the program: by an awaited condition or a moved clock, and through public names.

The numbers by folder only fall: so many lines still sleep, or read private state of what they test. `python -m
tests.test_habits` prints each.
"""

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parent
REAL_PROCESSES: Final = frozenset(
    {"bench", "chaos", "controlplane", "e2e", "hostile", "node", "parity", "support/e2e", "support/node"}
)
"""Folders that drive real servers, for which no clock can be injected."""
VIRTUAL_TIME: Final = frozenset({"simulation"})
"""Folders whose tests run on a loop of their own, on which to sleep takes no time."""

SLEEPS: Final[dict[str, int]] = {
    "api": 4,
    "kube": 2,
    "scheduling": 2,
    "support": 1,
}
PRIVATE: Final[dict[str, int]] = {
    "allocator": 12,
    "api": 1,
    "cel": 1,
    "conftest.py": 1,
    "controlplane": 2,
    "kube": 4,
    "ledger": 7,
    "model": 1,
    "scheduling": 14,
    "service": 3,
    "simulation": 5,
    "simulator": 1,
}


def test_tests_sleep_in_no_further_place() -> None:
    """A test awaits a condition, or moves the clock that it has injected."""
    counted = Counter(_folder(place) for place in sleeps())
    assert {folder: number for folder, number in counted.items() if number > SLEEPS.get(folder, 0)} == {}


def test_tests_read_private_state_in_no_further_place() -> None:
    """A test asks a public question; where there is none, the program gets one."""
    counted = Counter(_folder(place) for place in private_accesses())
    assert {folder: number for folder, number in counted.items() if number > PRIVATE.get(folder, 0)} == {}


def sleeps() -> Iterator[str]:
    """Calls of `asyncio.sleep` and `time.sleep` for more than one turn of the event loop, where no real process is waited for."""
    for path, tree in _modules():
        if _folder(str(path)) in REAL_PROCESSES | VIRTUAL_TIME or path.name.endswith("_e2e.py"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and _name(node.func) in {"asyncio.sleep", "time.sleep"}:
                seconds = node.args[0]
                if not (isinstance(seconds, ast.Constant) and seconds.value == 0):
                    yield f"{path}:{node.lineno}: {ast.unparse(node)}"


def private_accesses() -> Iterator[str]:
    """Lines that read a private attribute of anything but `self`, `cls` and `super()`, or that import or patch a private name."""
    for path, tree in _modules():
        lines: dict[int, str] = {}
        for node in ast.walk(tree):
            found = ""
            match node:
                case ast.Attribute(value=ast.Name(id="self" | "cls") | ast.Call(func=ast.Name(id="super"))):
                    pass
                case ast.Attribute(attr=name) if _is_private(name):
                    found = ast.unparse(node)
                case ast.ImportFrom(module=str(module), names=names) if private := [
                    each.name for each in names if _is_private(each.name)
                ]:
                    found = f"from {module} import {', '.join(private)}"
                case ast.Call(func=ast.Attribute(attr="setattr"), args=[_, ast.Constant(value=str(name)), *_]) if (
                    _is_private(name)
                ):
                    found = ast.unparse(node)
            if found and isinstance(node, ast.expr | ast.stmt):
                lines.setdefault(node.lineno, found)
        yield from (f"{path}:{line}: {found}" for line, found in sorted(lines.items()))


@cache
def _modules() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((file.relative_to(TESTS), ast.parse(file.read_text())) for file in sorted(TESTS.rglob("*.py")))


def _name(node: ast.expr) -> str:
    return ast.unparse(node) if isinstance(node, ast.Attribute | ast.Name) else ""


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _folder(place: str) -> str:
    """The first folder below tests; for shared helpers the second as well."""
    parts = Path(place.partition(":")[0]).parts
    return "/".join(parts[: 2 if parts[0] == "support" and len(parts) > 2 else 1])


def main() -> int:
    """Print each place, then the numbers."""
    for found in (tuple(sleeps()), tuple(private_accesses())):
        sys.stdout.write("\n".join(found))
        sys.stdout.write(f"\n{dict(sorted(Counter(map(_folder, found)).items()))}\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
