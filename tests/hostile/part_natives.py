"""Part "natives": every native function, with the worst arguments that its own statement admits."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import ATOMS, EDGES, PERIODS, Gene, changed, smaller
from tests.hostile.verdicts import BROKEN, GROWN, NATIVE, Job

MODULE: Final = "natives"
LIMITS: Final = (NATIVE, GROWN, BROKEN)
_CPU_SECONDS: Final = 5.0
_EIGHTHS: Final = 8
_MOST_LENGTH: Final = 19
_WIDE: Final = (" ", "\ud800", "\u2028", "\u0301", "\U0010ffff", "\x00", "\ue000")
_BEGINNINGS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("quantity", "isQuantity", "kubernetes.Quantity"), ("1", "1.", "1e", "0.", "-", "+1E")),
    **dict.fromkeys(("semver", "isSemver", "kubernetes.Semver"), ("1.2.3-", "1.2.3+", "1.", "v1.2.3-a.")),
    **dict.fromkeys(("ip", "isIP", "ip.isCanonical", "containsIP", "net.IP"), ("::", "1.", "fe80::1%", "::ffff:")),
    **dict.fromkeys(("cidr", "isCIDR", "containsCIDR", "net.CIDR"), ("10.0.0.0/", "::/", "10.0.0.0/8")),
    **dict.fromkeys(
        ("url", "isURL", "validate", "kubernetes.URL"), ("http://a/", "http://[::1", "/?", "http://a:", "http://a@")
    ),
    "timestamp": ("2020-01-01T00:00:00.", "2020-01-01T00:00:00Z", "0000-00-00"),
}
"""What the text of a call begins with so that its reader gets far."""


def _subject(entry: Mapping[str, Any]) -> Subject[Gene]:
    def job(gene: Gene) -> Job:
        return {"kind": "native", "name": entry["name"], "arguments": [_given(part) for part in gene.parts]}

    def text(gene: Gene) -> str:
        return ", ".join(_shown(kind, part) for kind, part in zip(entry["takes"], gene.parts, strict=True))

    return Subject(
        name=entry["name"], make=partial(_new_call, entry), change=_changed, job=job, text=text, smaller=smaller
    )


def _new_call(entry: Mapping[str, Any], random: Random) -> Gene:
    parts = tuple(_new_argument(entry["name"], kind, random) for kind in entry["takes"])
    if random.random() < 0.5:
        # Texts of one period, of which one is nearly a part of the other.
        parts = (parts[0], *(replace(each, texts=(parts[0].texts[0], *each.texts[1:])) for each in parts[1:]))
    return Gene("call", (), (), parts)


def _new_argument(name: str, kind: str, random: Random) -> Gene:
    length = (random.choice((0, 1, 4, 8, 11, 14, 16, 17, 18)), random.randrange(_EIGHTHS), random.randrange(8))
    beginnings = _BEGINNINGS.get(name, _BEGINNINGS.get(kind, ("",)))
    before = random.choice(beginnings) if random.random() < 0.7 else random.choice(EDGES)
    return Gene("argument", length, (_atom(random), before, random.choice(EDGES)))


def _atom(random: Random) -> str:
    return random.choice(random.choice((PERIODS, ATOMS, _WIDE)))


def _changed(random: Random, gene: Gene) -> Gene:
    """Another number or text; a length moves by an eighth as often as by powers of two."""
    place = random.randrange(len(gene.parts))
    part = gene.parts[place]
    if random.random() < 0.3:
        eighths = part.numbers[0] * _EIGHTHS + part.numbers[1] % _EIGHTHS + random.choice((-3, -1, 1, 3))
        numbers = (max(0, eighths // _EIGHTHS), eighths % _EIGHTHS, part.numbers[2])
        part = replace(part, numbers=numbers)
    else:
        part = changed(random, part, lambda _: None)
    return replace(gene, parts=(*gene.parts[:place], part, *gene.parts[place + 1 :]))


def _given(part: Gene) -> dict[str, Any]:
    power = min(part.numbers[0], _MOST_LENGTH)
    length = (2**power * (_EIGHTHS + part.numbers[1] % _EIGHTHS)) // _EIGHTHS
    atom, before, after = part.texts
    return {"atom": atom, "length": length, "before": before, "after": after, "shape": part.numbers[2]}


def _shown(kind: str, part: Gene) -> str:
    given = _given(part)
    return f"{kind}({given['before']!r} {given['atom']!r} up to {given['length']} {given['after']!r}, {given['shape']})"


PART: Final = Part(
    "natives",
    MODULE,
    lambda worker: [(LIMITS, [_subject(each) for each in worker.ask({"kind": "describe"})["natives"]])],
    _CPU_SECONDS,
)
"""Search for calls that take longer than they state."""
