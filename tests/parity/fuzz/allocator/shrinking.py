"""The smallest scenario that still shows a difference."""

import copy
from collections.abc import Callable, Iterator
from typing import Any, Final

from tests.parity.fuzz.allocator.chance import Json

_MOST_ROUNDS: Final = 60
_OPTIONAL: Final = frozenset(
    {
        "adminAccess",
        "allowMultipleAllocations",
        "attributes",
        "bindingConditions",
        "bindingFailureConditions",
        "bindsToNode",
        "capacity",
        "compatibilityGroups",
        "config",
        "constraints",
        "consumedCapacity",
        "consumesCounters",
        "derivedAttributes",
        "features",
        "labels",
        "requestPolicy",
        "selectors",
        "shareID",
        "skipNodeOperations",
        "taints",
        "tolerations",
    }
)
"""Members that may go; without others upstream cannot read the scenario."""

_MAPS: Final = frozenset({"attributes", "capacity", "consumedCapacity", "labels"})
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
        free = bool(path) and path[-1] in _MAPS and "requests" not in thing
        for key, value in thing.items():
            if free or key in _OPTIONAL:
                yield (*path, key)
            yield from _parts(value, (*path, key))
    elif isinstance(thing, list):
        for index in range(len(thing) - 1, -1, -1):
            yield (*path, index)
            yield from _parts(thing[index], (*path, index))


def _without(scenario: Json, path: Path) -> Json | None:
    """A copy without that part; None if it is gone already, or is the last alternative of a request."""
    found = copy.deepcopy(scenario)
    place: Any = found
    try:
        for step in path[:-1]:
            place = place[step]
        if path[-2:-1] == ("firstAvailable",) and len(place) == 1:
            return None
        del place[path[-1]]
    except (KeyError, IndexError, TypeError):
        return None
    return found
