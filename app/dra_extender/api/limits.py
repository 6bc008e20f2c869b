"""How much one request may hold.  What can be counted without decoding is counted first: refusing costs next to nothing then."""

from collections.abc import Sized
from typing import Annotated, Final

from msgspec import Meta

from dra_extender.api.decoding import MalformedRequestError

NODES: Final = 65_536
"""Nodes in one list; Kubernetes is tested with 5,000."""
WHOLE_NODES: Final = 10_000
"""Whole nodes in one list."""
CANDIDATES: Final = 16_384
"""Nodes in one proposal of preempt; kube-scheduler proposes a tenth of all nodes, and at least 100."""
VICTIMS: Final = 4_096
"""Victims on one node."""
MEMBERS: Final = 100_000
"""Members of all objects in a proposal of preempt: 500 candidates with 110 victims each have 56,500."""
ITEMS: Final = 400_000
"""Commas in a list of whole nodes: decoding so many takes some 50 ms."""

Name = Annotated[str, Meta(max_length=253)]
Namespace = Annotated[str, Meta(max_length=63)]
Uid = Annotated[str, Meta(max_length=128)]


def check_names(verb: str, field: str, raw: bytes) -> None:
    """Raises MalformedRequestError if a JSON list of strings has too many items."""
    # The shortest name takes four bytes, so that usual lists need not be counted.
    if len(raw) > 4 * NODES and raw.count(b",") >= NODES:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {NODES} names")


def check_length(verb: str, field: str, items: Sized, most: int, what: str) -> None:
    """Raises MalformedRequestError if there are more than `most` items."""
    if len(items) > most:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {most} {what}, got {len(items)}")


def check_members(verb: str, field: str, raw: bytes) -> None:
    """Raises MalformedRequestError if the objects in `raw` have too many members in all."""
    if raw.count(b":") > MEMBERS:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {MEMBERS} members of objects")


def check_items(verb: str, field: str, raw: bytes) -> None:
    """Raises MalformedRequestError if lists and objects in `raw` have too many items in all."""
    if raw.count(b",") > ITEMS:
        raise MalformedRequestError(f"{verb}: {field}: expected at most {ITEMS} items of lists and objects")
