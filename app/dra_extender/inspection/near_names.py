"""Names that were probably meant where an object or a word does not exist."""

import re
from bisect import bisect
from collections.abc import Iterable, Iterator
from typing import Final

from dra_extender.model.api_json import listed

_SEPARATORS: Final = re.compile(r"[-./]")
_SHORT: Final = 5
"""A word with fewer letters may be another one for a single letter: gpu, vgpu, cpu."""
_LONG: Final = 8
"""The last letter of a name that has so many may be missing, or one too much."""
_MOST_NAMED: Final = 3
_SLIP_MARKS: Final = re.compile(r"r[0-9a-f]{11}((?:n\d+)+)")


def meant_name(missing: str, names: Iterable[str]) -> str | None:
    """Return the one name of which another name is a slip; None if there is none or several."""
    candidates = near_names(missing, names)
    return candidates[0] if len(candidates) == 1 else None


def near_names(missing: str, names: Iterable[str]) -> list[str]:
    """Return all names of which another name is a slip."""
    return [name for name in names if is_slip(missing, name)]


def nearest_name_text(missing: str, names: Iterable[str]) -> str:
    """Return `; nearest name a`, or `; nearest names a, b` if it is not clear which was meant; nothing if no name is near."""
    near = sorted(near_names(missing, names))
    return f"; nearest {'name' if len(near) == 1 else 'names'} {listed(near)}" if near else ""


def names_there(missing: str, names: Iterable[str]) -> str:
    """Return what exists instead of a name that does not: `; nearest name a`, or `; there are a, b`, its neighbours in order."""
    ordered = sorted(names)
    nearest = nearest_name_text(missing, ordered)
    if nearest:
        return nearest
    first = max(0, min(bisect(ordered, missing) - 1, len(ordered) - _MOST_NAMED))
    return f"; there are {listed([*ordered[first:], *ordered[:first]])}" if ordered else ""


def name_hint(key: tuple[str, str], keys: Iterable[tuple[str, str]]) -> str:
    """Return what may be meant by the (namespace, name) of an object that does not exist, among those that do.

    That is `; there is ml/train` with the objects of this name in other namespaces, otherwise `; nearest name train`, or nothing.
    """
    namespace, name = key
    existing = sorted(keys)
    elsewhere = ["/".join(filter(None, other)) for other in existing if other[1] == name]
    if elsewhere:
        return f"; there is {listed(elsewhere)}"
    return nearest_name_text(name, (other for of_namespace, other in existing if of_namespace == namespace))


def instead(right: str, wrong: str) -> str:
    return f"{right} instead of {wrong}"


def is_slip(written: str, name: str) -> bool:
    """Return whether one name is the other with a slip: other separators, two neighbours swapped, or one letter of a long word.

    Digits tell kinds apart (a10, a100), and so may every letter of a short word that is not doubled and no s of the plural.
    """
    if written == name:
        return False
    parts, name_parts = _SEPARATORS.split(written), _SEPARATORS.split(name)
    if "".join(parts) == "".join(name_parts):
        return True
    pairs = [pair for pair in zip(parts, name_parts, strict=False) if pair[0] != pair[1]]
    if len(parts) != len(name_parts) or len(pairs) != 1:
        return False
    ((word, name_word),) = pairs
    if not (word + name_word).isalpha():
        return bool(_slip_marks(word) & _slip_marks(name_word))
    differing = [
        place for place, (letter, name_letter) in enumerate(zip(word, name_word, strict=False)) if letter != name_letter
    ]
    shortest = min(len(word), len(name_word))
    place = differing[0] if differing else shortest
    after, name_after = word[place + 1 :], name_word[place + 1 :]
    if len(word) == len(name_word) and differing == [place, place + 1]:
        return word[place : place + 2] == name_word[place : place + 2][::-1] and len(word) > len("ab")
    begins = min(len(written), len(name)) >= _LONG and (written.startswith(name) or name.startswith(written))
    longer = max(word, name_word, key=len)
    doubled = longer[place - 1 : place + 1] == longer[place - 1] * 2
    plural = place == shortest and longer.endswith("s")
    repeats = len("ab") < shortest < len(longer) and (doubled or plural)
    if shortest < _SHORT and not (begins or repeats):
        return False
    # One letter is another one, added or missing.
    return after == name_after or after == name_word[place:] or word[place:] == name_after


def slip_mark(number: int) -> str:
    """Return the end of a redacted name (see `OrderedNames`): two names are slips of each other if they share a mark."""
    return f"n{number}"


def _slip_marks(word: str) -> frozenset[str]:
    marked = _SLIP_MARKS.search(word)
    return frozenset(marked[1].split("n")[1:]) if marked else frozenset()


def slip_contexts(name: str) -> Iterator[tuple[str, ...]]:
    """Yield what is left of a name without the place of a slip, for each place: a slip of it has one of these contexts, too."""
    parts = _SEPARATORS.split(name)
    yield ("".join(parts),)
    for index, word in enumerate(parts):
        if not word or word.isalpha():
            yield (*parts[:index], "", *parts[index + 1 :])
