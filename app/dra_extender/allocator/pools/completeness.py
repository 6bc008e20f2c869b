"""Whether the slices of a pool are complete: as many of one generation as they declare."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dra_extender.model.resource_slice import ResourceSlice


@dataclass(frozen=True, slots=True)
class KnownSlices:
    """The slices of one pool in its current generation, as seen from one node.

    `relevant` are usable from the node (sorted by name).  `elsewhere` are the others, known only when the relevant ones
    alone are not the whole pool.  An incomplete pool offers nothing; `published` of `expected` slices were found, and `ignored`
    are the names of those that do not count.
    """

    relevant: tuple[ResourceSlice, ...]
    elsewhere: tuple[ResourceSlice, ...] = ()
    complete: bool = True
    published: int = 0
    expected: int = 0
    ignored: tuple[str, ...] = ()


def latest_generation(relevant: Sequence[ResourceSlice]) -> list[ResourceSlice]:
    """Of the relevant slices of one pool, those with the highest generation, in the given order."""
    newest = max(each.generation for each in relevant)
    return [each for each in relevant if each.generation == newest]


def complete(
    relevant: Sequence[ResourceSlice],
    whole_pool: Callable[[], Iterable[ResourceSlice]],
    counts: Callable[[ResourceSlice], bool],
) -> KnownSlices | None:
    """The pool from its relevant slices of one generation and, if needed, from all its slices on any node.

    The first relevant slice declares the number of slices, which must match exactly: the relevant slices alone, or else all slices
    of that generation for which `counts` holds.  None if the relevant slices alone are incomplete and a newer generation exists
    elsewhere: the pool is then ignored.
    """
    generation, expected = relevant[0].generation, relevant[0].slice_count
    in_order = tuple(sorted(relevant, key=lambda each: each.name))
    if len(relevant) == expected:
        return KnownSlices(relevant=in_order, published=expected, expected=expected)
    pool = tuple(whole_pool())
    if any(each.generation > generation for each in pool):
        return None
    current = [each for each in pool if each.generation == generation]
    same = [each for each in current if counts(each)]
    names = {each.name for each in relevant}
    return KnownSlices(
        relevant=in_order,
        elsewhere=tuple(each for each in same if each.name not in names),
        complete=len(same) == expected,
        published=len(same),
        expected=expected,
        ignored=tuple(each.name for each in current if not counts(each)),
    )
