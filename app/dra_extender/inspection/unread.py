"""What an answer depends on and could not be read: which kinds, in a sentence that names the right and the role that grants it."""

from collections.abc import Collection, Sequence
from typing import Final

from dra_extender.inspection.objects import EVENTS, KINDS, MissingKind, Origin

ROLE: Final = "ClusterRole dra-viewer"
DEVICES: Final = frozenset({"nodes", "deviceclasses", "devicetaintrules", "resourceslices", "resourceclaims"})
"""Kinds that every answer about free devices and fitting nodes depends on."""
JUDGED: Final = DEVICES | {"pods", "podgroups"}
"""Kinds that answers about pods that wait depend on."""
EVERYTHING: Final = frozenset(KINDS)
NAMED: Final = EVERYTHING | {EVENTS}
"""Kinds whose lack an answer names; Events add reasons to an answer, and no answer depends on them."""


class UnreadKindsError(Exception):
    """A question has no answer, because objects that it depends on could not be read."""


def unread(origin: Origin, kinds: Collection[str], namespace: str | None = None) -> tuple[MissingKind, ...]:
    """Return those of the kinds that the API server serves and that could not be read.

    Args:
        origin: Where the objects come from.
        kinds: Plural kinds that an answer depends on.
        namespace: The namespace that the answer is about; None: all of them.
    """
    return tuple(
        missing
        for missing in origin.missing
        if missing.kind in kinds and missing.served and not (namespace and missing.namespace == namespace)
    )


def require(origin: Origin, kinds: Collection[str], namespace: str | None = None) -> None:
    """Refuse an answer that depends on objects that could not be read; arguments as for `unread`.

    Raises:
        UnreadKindsError: one of the kinds could not be read.
    """
    missing = unread(origin, kinds, namespace)
    if missing:
        raise UnreadKindsError(f"no answer with {origin.source}: {unknown_text(missing)}: {missing[0].reason}")


def require_any(origin: Origin) -> None:
    """Refuse an answer that would be made of nothing.

    Raises:
        UnreadKindsError: no kind could be read, not even that of one namespace.
    """
    missing = unread(origin, EVERYTHING)
    absent = {each.kind for each in origin.missing if not each.served}
    if len(missing) + len(absent) == len(KINDS) and not any(each.namespace for each in missing):
        require(origin, EVERYTHING)


def unknown_text(missing: Sequence[MissingKind]) -> str:
    """Return a sentence that says which kinds could not be read, which right lacks, and which role grants it."""
    denied = [each for each in missing if each.forbidden]
    failed = [each.kind for each in missing if not each.forbidden]
    parts = []
    if denied:
        parts.append(f"the account may not list {_scoped(denied)} ({ROLE} grants it)")
    if failed:
        parts.append(f"the API server did not list {', '.join(failed)}")
    return "; ".join(parts)


def _scoped(missing: Sequence[MissingKind]) -> str:
    """Return e.g. `nodes, resourceslices, nor pods and resourceclaims outside namespace ml`."""
    wholly = [each.kind for each in missing if not each.namespace]
    partly = [each for each in missing if each.namespace]
    if not partly:
        return ", ".join(wholly)
    kinds = [each.kind for each in partly]
    listed = kinds[0] if len(kinds) == 1 else f"{', '.join(kinds[:-1])} and {kinds[-1]}"
    outside = f"{listed} outside namespace {partly[0].namespace}"
    return f"{', '.join(wholly)}, nor {outside}" if wholly else outside
