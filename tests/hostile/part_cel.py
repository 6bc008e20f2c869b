"""Part "cel": every declared function and operator, called with the worst values that a selector can make."""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any, Final

from tests.hostile.cel_calls import MOST_BYTES, expression, new_call, renewed, subject
from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene, changed, smaller
from tests.hostile.verdicts import BROKEN, GROWN, NATIVE, STALL, Job

LIMITS: Final = (NATIVE, STALL, GROWN, BROKEN)
MODULE: Final = "cel"
_LARGE: Final = frozenset({"string", "list", "map", "bytes", "dyn"})
"""Types whose values can be large."""


def _subject(overload: Mapping[str, Any]) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        return changed(random, gene, partial(renewed, random, overload))

    def job(gene: Gene) -> Job | None:
        text = expression(overload, gene)
        return {"kind": "evaluate", "expression": text, "observe": True} if len(text.encode()) <= MOST_BYTES else None

    return Subject(
        name=subject(overload),
        make=lambda random: new_call(random, overload),
        change=change,
        job=job,
        text=partial(expression, overload),
        smaller=smaller,
        weight=1.0 + 3.0 * sum(each["name"] in _LARGE for each in overload["parameters"]),
    )


PART: Final = Part(
    "cel", MODULE, lambda worker: [(LIMITS, [_subject(each) for each in worker.ask({"kind": "describe"})["overloads"]])]
)
"""Search for calls that are charged too little."""
