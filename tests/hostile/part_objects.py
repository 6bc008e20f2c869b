"""Part "objects": large objects of the kinds that a namespace user writes, for the bytes kept of them and the loops over them."""

from functools import partial
from typing import Final

from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene
from tests.hostile.large_objects import (
    SIZES,
    changed_object,
    described,
    in_the_status,
    new_object,
    size_of,
    smaller_object,
    text_of,
)
from tests.hostile.verdicts import BROKEN, STALL, Job, Limit

MODULE: Final = "objects"
CPU_SECONDS: Final = 60.0
KEPT: Final = Limit("kept", 1.0, "of what may be kept")
LEFT: Final = Limit("left", 0.1, "of what was deleted")
FLOODED: Final = Limit("resident", 100 * 2**20, "B")
LIMITS: Final = (KEPT, LEFT, STALL, BROKEN, FLOODED)
_TENANTS: Final = ("resourceclaims", "pods", "podgroups")
"""What the user of a namespace writes; administrators, nodes and drivers write the rest, and the status of these."""
_KINDS: Final = ("kept", "loops", "flood")
_FLOOD: Final = 5_000
_LEAST_BYTES: Final = 9 * 1024
_MOST_BYTES: Final = 3 * 2**19
"""The longest that the API server takes in one request, and below which what an object costs at least is most of it."""


def _subject(plural: str, kind: str) -> Subject[Gene]:
    def job(gene: Gene) -> Job | None:
        if kind == "flood" and size_of(gene) != SIZES[0]:
            return None
        if kind == "kept" and in_the_status(gene):
            return None
        text = text_of(gene)
        if not _LEAST_BYTES <= len(text.encode(errors="surrogatepass")) <= _MOST_BYTES:
            return None
        return {"kind": kind, "plural": plural, "object": text, "count": _FLOOD}

    return Subject(
        name=f"{plural}, {kind}",
        make=partial(new_object, plural),
        change=changed_object,
        job=job,
        text=described,
        smaller=smaller_object,
        weight={"kept": 3.0, "loops": 1.0, "flood": 0.2}[kind],
    )


PART: Final = Part(
    "objects",
    MODULE,
    lambda _: [(LIMITS, [_subject(plural, kind) for kind in _KINDS for plural in _TENANTS])],
    CPU_SECONDS,
)
"""Search for objects of which more is kept than was given, and for loops over them that take long."""
