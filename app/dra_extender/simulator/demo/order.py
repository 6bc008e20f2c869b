"""In which order the documents of a story take effect, so that the order of objects in a file decides nothing.

A story goes on in steps.  A step ends with a document that expects something of its pods at this point; a document that deletes an
object, or changes one that an earlier document has, is a step of its own.  All other documents of a step take effect together:
nothing is scheduled in between, and pods queue by creation time and name, wherever they are in the file.  What runs already, a pod
on its node or a claim with its devices, is there from the beginning.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.simulator.apiserver.objects import Key, StoredKind, part
from dra_extender.simulator.demo.document import Action, Document

_RANK: Final = {
    kind: rank
    for rank, kind in enumerate(
        (
            StoredKind.NODE,
            StoredKind.CLASS,
            StoredKind.TAINT_RULE,
            StoredKind.SLICE,
            StoredKind.TEMPLATE,
            StoredKind.POD_GROUP,
            StoredKind.CLAIM,
            StoredKind.POD,
        )
    )
}
_DIGITS: Final = re.compile(r"([0-9]{1,18})")
_LAST: Final = "~"
"""After every time stamp."""


class Step(NamedTuple):
    """Documents that are reported together, in the order of the files, and those that take effect now, in their order."""

    reported: tuple[Document, ...]
    applied: tuple[Document, ...]


def steps_of(documents: Sequence[Document]) -> list[Step]:
    early = _running_before(documents)
    reported: list[list[Document]] = [[]]
    seen: set[Key] = set()
    for document in documents:
        changes = document.action is Action.DELETE or not seen.isdisjoint(document.keys)
        if changes and reported[-1]:
            reported.append([])
        reported[-1].append(document)
        if changes or document.expect is not None:
            reported.append([])
        seen.update(document.keys)
    groups = [reason for reason in reported if reason]
    return [
        Step(
            tuple(each),
            tuple(
                in_order(
                    [
                        *(early.values() if index == 0 else ()),
                        *(document for document in each if id(document) not in early),
                    ]
                )
            ),
        )
        for index, each in enumerate(groups)
    ]


def _running_before(documents: Sequence[Document]) -> dict[int, Document]:
    """The documents, by identity, that show what runs when the story begins: no earlier document is about the same object."""
    found: dict[int, Document] = {}
    seen: set[Key] = set()
    for document in documents:
        if document.runs_already and seen.isdisjoint(document.keys):
            found[id(document)] = document
        seen.update(document.keys)
    return found


def in_order(documents: Iterable[Document]) -> list[Document]:
    """First what pods refer to, then the pods that wait, the oldest first, then by name."""
    return sorted(documents, key=_place)


def _place(document: Document) -> tuple[Any, ...]:
    kind = document.key.kind
    # The claim controller removes what is reserved for pods that it does not know.
    rank = _RANK[StoredKind.POD_GROUP] if kind is StoredKind.POD and document.runs_already else _RANK[kind]
    created = part(document.thing, "metadata").get("creationTimestamp") or _LAST
    return rank, str(created) if kind is StoredKind.POD else "", document.key.namespace, _natural(document.key.name)


def _natural(name: str) -> tuple[Any, ...]:
    """`p-2` comes before `p-10`."""
    return tuple((int(each), "") if each.isdecimal() else (-1, each) for each in _DIGITS.split(name) if each)
