"""The smallest scenario that still shows a difference."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.parity.fuzz.allocator.chance import Json

_MOST_ROUNDS: Final = 60
_KEPT: Final = frozenset(
    {"name", "nodes", "classes", "claims", "slices", "allocated", "metadata", "spec", "driver", "pool"}
)
Path = tuple[str | int, ...]


def smallest(scenario: Json, differs: Callable[[Json], bool]) -> Json:
    """Take parts away, the large ones first, as long as the difference stays."""
    for _ in range(_MOST_ROUNDS):
        before = scenario
        for path in sorted(_parts(scenario), key=len):
            candidate = _without(scenario, path)
            if candidate is not None and differs(candidate):
                scenario = candidate
        if scenario is before:
            break
    return scenario


def _parts(thing: Any, path: Path = ()) -> Iterator[Path]:
    """Paths of everything that may go: list items from the end, and optional members."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            if key not in _KEPT:
                yield (*path, key)
            yield from _parts(value, (*path, key))
    elif isinstance(thing, list):
        for index in range(len(thing) - 1, -1, -1):
            yield (*path, index)
            yield from _parts(thing[index], (*path, index))


def _without(scenario: Json, path: Path) -> Json | None:
    """A copy without that part; None if it is gone already."""
    found = copy.deepcopy(scenario)
    place: Any = found
    try:
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return found
