"""Part "compile": selectors of up to 10 KiB that are to take long to compile, to explain or to lint."""

from dataclasses import replace
from functools import partial
from random import Random
from typing import Final

from tests.hostile.cel_calls import MOST_BYTES
from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene, changed, new_pattern, smaller
from tests.hostile.part_cel import MODULE
from tests.hostile.verdicts import BROKEN, GROWN, NATIVE, STALL, Job, Limit

LIMITS: Final = (NATIVE, STALL, GROWN, BROKEN)
LINT_LIMITS: Final = (Limit("stall", 1.0, "s"), GROWN, BROKEN)
"""Whoever lints waits for it alone."""
_MOST_CPU_SECONDS: Final = 1.5
_MOST_TIMES: Final = 5000
_NESTS: Final = (
    *(("(", ")"), ("[", "]"), ("[dyn(", ")]"), ("!", ""), ("-", ""), ("{'a': ", "}"), ("{1: ", "}"), ("dyn(", ")")),
    *(("true ? ", " : true"), ("[1].all(x#, ", ")"), ("[1].exists(x#, true || ", ")"), ("cel.bind(v#, 1, ", ")")),
    *(("cel.bind(v#, [v], ", ")"), ("cel.bind(v, [v, v], ", ")"), ("cel.bind(v, {'a': v, 'b': v}, ", ")")),
    *(("[1].map(x#, [1].filter(y#, true || ", "))"), ("optional.of(", ")"), ("[", ", dyn(1)]")),
    *(("has(device.attributes.", ")"),),
    *(("[[1].sortBy(x#, x#), ", "]"), ("lists.range(3).transformMapEntry(i#, x#, {x#: ", "})"), ("(true && ", ")")),
)
_CORES: Final = (
    *("true", "1", "'a'", "v", "[]", "{}", "device.driver == 'd#'", "device.attributes['a#'].b", "'a'.matches('/#')"),
    *(
        "'a'.find('/') == '#'",
        "device.attributes['gpu.example.com'].aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa# == 'a'",
        "1 in [1, #]",
    ),
    *("quantity('1e#') > quantity('#')", "semver('1.0.#').isLessThan(semver('0.0.1'))", "1.# < 1e#", "0x# == 1"),
    *("{'aaaaaaaaaaaaaaaa#': 1}['aaaaaaaaaaaaaaab'] == 1", "cel.bind(v, [1], v)", "'\\U0001F600#' == '\\u00e9'"),
    *("device.capacity['gpu.example.com'].b# >= quantity('1Gi')", "x#", "[1, 2].exists(x, x == #)", "b'\\xff#' == b''"),
    *("{'/': 1}['/b'] == 1", "'%/'.format([1]) == ''", "duration('#ns') > duration('1s')", "timestamp('#') == null"),
)
_CONDITIONS: Final = tuple(core for core in _CORES if "==" in core or ">" in core or "<" in core or "(" in core)
_LIKELY: Final = 0.6
"""How often a text is put together so that it is likely to be valid."""
_JOINERS: Final = (" || ", " && ", " + ", ", ", " == ", " ? true : ", ".", "", " - ", "\n//\n|| ")
_FRAMES: Final = ("{}", "[{}].size() == 1", "{{'m': dyn([{}])}} == {{}}", "cel.bind(v, [1], {})", "dyn({}) == dyn(1)")
_KINDS: Final = (("compile", "compiling", LIMITS), ("explain", "explaining", LIMITS), ("lint", "linting", LINT_LIMITS))


def new_shape(random: Random, shape: str) -> Gene:
    """Something nested in itself, many terms in a row, patterns, or all of them."""
    texts = (random.choice(_CORES), random.choice(_JOINERS), random.choice(_FRAMES))
    if random.random() < _LIKELY:
        texts = (random.choice(_CONDITIONS), *random.choice(((" || ", "{}"), (", ", "[{}].size() == 1"))))
    opened, closed = random.choice(_NESTS)
    other_opened, other_closed = random.choice(_NESTS)
    nests = (opened, closed, other_opened, other_closed) if shape == "nested" else ("", "", "", "")
    rows = random.choice((1, 10, 60, 250, 1000, 3000)) if shape != "nested" else random.choice((1, 1, 5))
    depths = random.choice((3, 20, 58, 120, 400)) if shape == "nested" else 0
    pattern = Gene("pattern", (), (new_pattern(random),))
    core = "'a'.matches('/#')" if shape == "patterns" else texts[0]
    return Gene("shape", (rows, depths), (core, *texts[1:], *nests), (pattern,))


_SHAPES: Final = ("nested", "rows", "patterns")


def text(gene: Gene) -> str:
    """The selector: '#' counts, '/' is the pattern."""
    rows, depths = (min(number, _MOST_TIMES) for number in gene.numbers)
    core, joiner, frame, *nests = gene.texts
    pattern = gene.parts[0].texts[0]
    room = MOST_BYTES - 60
    each = len(core.encode()) + len(joiner.encode()) + 3 + (len(pattern.encode()) if "/" in core else 0)
    rows = max(1, min(rows, room // each))
    terms = joiner.join(core.replace("/", pattern).replace("#", str(place)) for place in range(rows))
    width = sum(len(nest) for nest in nests) + 6
    depths = min(depths, max(0, room - len(terms.encode())) // width)
    opened = "".join((nests[0] + nests[2]).replace("#", str(place)) for place in range(depths))
    closed = "".join((nests[3] + nests[1]).replace("#", str(place)) for place in reversed(range(depths)))
    return frame.format(f"{opened}{terms}{closed}")


def _subject(name: str, kind: str, shape: str) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        if shape == "patterns" and random.random() < _LIKELY:
            return replace(gene, parts=(changed(random, gene.parts[0], lambda _: None),))
        if random.random() < _LIKELY:
            return _scaled(random, gene)
        other = new_shape(random, shape)
        place = random.randrange(len(gene.texts))
        return replace(gene, texts=(*gene.texts[:place], other.texts[place], *gene.texts[place + 1 :]))

    def job(gene: Gene) -> Job | None:
        selector = text(gene)
        observe = kind == "compiling" and "matches" in selector
        return (
            {"kind": kind, "expression": selector, "observe": observe} if len(selector.encode()) <= MOST_BYTES else None
        )

    return Subject(f"{name} {shape}", partial(_new, shape), change, job, text, smaller)


def _new(shape: str, random: Random) -> Gene:
    return new_shape(random, shape)


def _scaled(random: Random, gene: Gene) -> Gene:
    rows, depths = gene.numbers
    return replace(
        gene, numbers=(max(1, int(rows * random.choice((0.5, 2, 3)))), int(depths * random.choice((0.5, 1, 1.5, 3))))
    )


PART: Final = Part(
    "compile",
    MODULE,
    lambda _: [(limits, [_subject(name, kind, shape) for shape in _SHAPES]) for name, kind, limits in _KINDS],
    _MOST_CPU_SECONDS,
)
"""Search for selectors that are expensive before they are evaluated, and for what explains them."""
