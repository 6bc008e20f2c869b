"""Expressions for values of a declared type: as large as an expression can make them from a few characters."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final

from tests.hostile.genes import ATOMS, EDGES, PERIODS, Gene, new_pattern, random_text

_MOST_DOUBLINGS: Final = 24
_MAKERS: Final[Mapping[str, tuple[str, str]]] = {
    "kubernetes.Quantity": ("quantity", "text"),
    "kubernetes.Semver": ("semver", "text"),
    "net.IP": ("ip", "text"),
    "net.CIDR": ("cidr", "text"),
    "kubernetes.URL": ("url", "text"),
    "duration": ("duration", "text"),
    "timestamp": ("timestamp", "int"),
}
"""Types of libraries, by the function that makes their values and what of."""
_BEGINNINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "quantity": ("1", "1.", "1e", "0.", "-", ""),
    "semver": ("1.2.3-", "1.2.3+", "1.2.3", ""),
    "ip": ("10.0.0.1", "::", "fe80::", "1.", "::ffff:"),
    "cidr": ("10.0.0.0/8", "::/0", "10.0.0.0/"),
    "url": ("http://a/", "/", "http://", "/?", "http://[::1]/"),
    "duration": ("1s", "", "1h", "1.", "-"),
    "timestamp": ("2020-01-01T00:00:00Z", "2020-01-01T00:00:00."),
}
_NAMED_FORMATS: Final = ("dns1123Label", "dns1123Subdomain", "uri", "uuid", "byte", "date", "datetime", "qualifiedName")
_TYPES: Final = ("type(1)", "type(true)", "type('a')", "type([1])")
_INTEGERS: Final = (0, 1, 2, -1, 7, 10**6, 2**31, 2**53, 2**61 - 1, 2**63 - 1, -(2**63) + 1)
_ENDS: Final = (("a",), ("a", "b"), ("a", "b"), ("ab", "ba"), ("", "a"), ("\u00e9", "a"), ("\u00e9", "\u00df"))
"""Ends of texts that are alike up to there: equal ones, others of one length, longer and wider ones."""
_DOUBLES: Final = ("0.0", "1.5", "1e308", "5e-324", "1e22", "-1e-300", "2.305843009213694e18")
_ELEMENTS: Final = (
    *("{0}", "string({0})", "double({0})", "{0} % 7", "{0} * 2147483648", "{0} * 35184372088832", "'a' + string({0})"),
    *("[{0}]", "{{'k': {0}}}", "dyn({0})", "{0} * {0}", "-{0}", "uint({0})", "dyn({0} % 2 == 0 ? dyn({0}) : dyn(1.5))"),
    *("duration(string({0}) + 's')", "timestamp({0})", "[double({0}), 1.0]", "bytes(string({0}))", "{1}"),
    *("{1} + string({0})", "{1} + string({0} % 7)"),
)
"""What a list has at place {0}; {1} is a text."""
_SUITABLE: Final[Mapping[str, tuple[int, ...]]] = {
    "int": (0, 3, 4, 5, 10, 11),
    "uint": (12,),
    "double": (2,),
    "string": (1, 6, 18, 19, 20),
    "bytes": (17,),
    "duration": (14,),
    "timestamp": (15,),
    "list": (7, 16),
}


@dataclass
class Written:
    """An expression being written: the variables bound so far, innermost last, and those that texts were doubled in."""

    bound: list[tuple[str, str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def bind(self, expression: str) -> str:
        """Give an expression a name."""
        name = f"v{len(self.bound)}"
        self.bound.append((name, expression))
        return name

    def around(self, body: str) -> str:
        """The whole: bindings with the body innermost."""
        return "".join(f"cel.bind({name}, {value}, " for name, value in self.bound) + body + ")" * len(self.bound)


def new_value(random: Random, declared: Mapping[str, Any]) -> Gene:
    name, kind = str(declared["name"]), declared["kind"]
    if kind in {"dyn", "variable"}:
        open_kinds = ("string", "string", "int", "double", "list", "list", "map", "bytes", "bool", "duration")
        return Gene("dyn", (), (), (new_value(random, _plain(random.choice(open_kinds))),))
    maker = _NEW.get(name)
    if maker is not None:
        return maker(random, declared)
    if name in _MAKERS:
        function, of = _MAKERS[name]
        inner = new_text(random, _BEGINNINGS[function]) if of == "text" else new_number(random)
        return Gene(f"made {function}", (), (), (inner,))
    if name == "kubernetes.NamedFormat":
        return Gene("format", (random.randrange(len(_NAMED_FORMATS)),))
    return Gene("null")


def new_text(random: Random, beginnings: tuple[str, ...] = EDGES) -> Gene:
    """A text: an atom doubled, with something before and after; or one that was made before, with something around it."""
    if random.random() < 0.4:
        return Gene("same", (random.randrange(4),), ("", random_text(random, EDGES), random.choice(EDGES)))
    size = random.choice((0, 0, 2, 5, 8, 10, 12, 14, 16, 17, 18, 19))
    texts = (random_text(random, ATOMS), random.choice(beginnings), random.choice(EDGES))
    return Gene("text", (random.choice((0, 0, 0, 1, 2, 3)), size), texts)


def alike_texts(random: Random, count: int) -> list[Gene]:
    """A long text with a period, and others that nearly are parts of it: they begin or end with something else."""
    sizes = (random.choice((0, 0, 1, 2)), random.choice((10, 13, 16, 17, 18)))
    first = Gene("text", sizes, (random.choice(PERIODS), "", random.choice(EDGES)))
    others = (Gene("same", (random.randrange(6),), ("", random.choice(PERIODS), "")) for _ in range(1, count))
    return [
        first,
        *(replace(each, texts=("", "", each.texts[1])) if random.random() < 0.3 else each for each in others),
    ]


def alike_members(random: Random, declared: Sequence[Mapping[str, Any]]) -> list[Gene] | None:
    """Long texts that differ at their ends alone, if at all, and lists of many of them, for all that is compared.

    None where the parameters cannot hold them.
    """
    shapes = [_member_shape(each) for each in declared]
    if len(shapes) < 2 or not {"list", "open"}.intersection(shapes) or None in shapes:
        return None
    shapes = [("text" if "list" in shapes else "list") if each == "open" else each for each in shapes]
    size, length = random.choice((10, 13, 15, 16, 17, 18)), random.choice((2, 6, 10, 12, 14, 16))
    ends, period, depth = random.choice(_ENDS), random.choice(PERIODS), random.choice((0, 0, 0, 1))
    made = []
    for place, shape in enumerate(shapes):
        kind, numbers = ("same", (0,)) if place else ("text", (0, size))
        member = Gene(kind, numbers, ("" if place else period, "", random.choice(ends)))
        for _ in range(depth):
            member = Gene("doubled", (0,), (), (member,))
        made.append(Gene("doubled", (length,), (), (member,)) if shape == "list" else member)
    return made


def _member_shape(declared: Mapping[str, Any]) -> str | None:
    """What such a parameter takes: a text, a list of them, or either."""
    if declared["name"] == "list":
        element = declared["parameters"][0]
        return "list" if element["kind"] in {"dyn", "variable"} or element["name"] == "string" else None
    if declared["kind"] in {"dyn", "variable"}:
        return "open"
    return "text" if declared["name"] == "string" else None


def new_number(random: Random) -> Gene:
    return Gene("int", (random.randrange(2 * len(_INTEGERS)), random.randrange(20)))


def _new_list(random: Random, declared: Mapping[str, Any]) -> Gene:
    parameters = declared["parameters"]
    element: Mapping[str, Any] = parameters[0] if parameters else {"kind": "dyn", "name": "dyn", "parameters": []}
    open_type = element["kind"] in {"dyn", "variable"}
    suitable = tuple(range(len(_ELEMENTS))) if open_type else _SUITABLE.get(element["name"], ())
    size = random.choice((0, 3, 6, 8, 10, 12, 14, 16, 17))
    if suitable and random.random() < 0.7:
        return Gene("mapped", (size, random.choice(suitable), 99), (), (new_text(random),))
    return Gene("doubled", (size,), (), (new_value(random, element),))


def _new_map(random: Random, declared: Mapping[str, Any]) -> Gene:
    return Gene("mapping", (random.choice((0, 4, 8, 10, 12, 14)), random.randrange(4), random.randrange(9)))


_NEW: Final[Mapping[str, Callable[[Random, Mapping[str, Any]], Gene]]] = {
    "string": lambda random, _: new_text(random),
    "bytes": lambda random, _: Gene("bytes", (), (), (new_text(random),)),
    "int": lambda random, _: new_number(random),
    "uint": lambda random, _: Gene("uint", (random.choice((0, 1, 2**32, 2**63, 2**64 - 1)),)),
    "double": lambda random, _: Gene("double", (random.randrange(len(_DOUBLES)),)),
    "bool": lambda random, _: Gene("bool", (random.randrange(2),)),
    "null_type": lambda random, _: Gene("null"),
    "list": _new_list,
    "map": _new_map,
    "type": lambda random, _: Gene("type", (random.randrange(4),)),
    "optional_type": lambda random, declared: Gene(
        "optional",
        (),
        (),
        (new_value(random, declared["parameters"][0] if declared["parameters"] else {"kind": "dyn", "name": "dyn"}),),
    ),
}


def new_pattern_value(random: Random) -> Gene:
    """A regular expression that stands in the text."""
    return Gene("pattern", (), (new_pattern(random),))


def write(gene: Gene, written: Written) -> str:
    """The expression of a value; what is used twice is bound."""
    writer = _WRITERS.get(gene.kind)
    if writer is not None:
        return writer(gene, written)
    function = gene.kind.removeprefix("made ")
    return f"{function}({write(gene.parts[0], written)})"


def _text(gene: Gene, written: Written) -> str:
    form, size = gene.numbers[0] % 4, min(gene.numbers[1], _MOST_DOUBLINGS)
    atom, before, after = gene.texts
    literal = 1
    while size and literal * len(atom) < 32:
        literal, size = literal * 2, size - 1
    name = written.bind(f"'{atom * literal}'")
    if form == 1:
        earlier = f"'{before}a'"
        for _ in range(min(size * 3 // 2, _MOST_DOUBLINGS * 3 // 2)):
            name, earlier = written.bind(f"{name} + {earlier}"), name
    elif form == 2 and size > 2:
        name = written.bind(f"lists.range({2 ** min(size, 16)}).map(i, {name}).join()")
    elif form == 3 and size > 2:
        name = written.bind(f"lists.range({2 ** min(size, 16)}).map(i, string(i)).join('{atom}')")
    else:
        for _ in range(size):
            name = written.bind(f"{name} + {name}")
    written.texts.append(name)
    return _between(name, before, after, written)


def _same(gene: Gene, written: Written) -> str:
    """A text bound earlier, or one that it was doubled from, so that one is a part of the other."""
    _, before, after = gene.texts
    if not written.texts:
        return f"'{before}{after}'"
    name = written.texts[-1]
    place = max(0, int(name[1:]) - gene.numbers[0])
    known = dict(written.bound).get(f"v{place}", "")
    usable = known.startswith(("'", "v")) and not known.startswith("v0.")
    return _between(f"v{place}" if usable else name, before, after, written)


def _between(name: str, before: str, after: str, written: Written) -> str:
    if not before and not after:
        return name
    parts = [*([f"'{before}'"] if before else []), name, *([f"'{after}'"] if after else [])]
    return written.bind(" + ".join(parts))


def _integer(gene: Gene, _: Written) -> str:
    place, size = gene.numbers
    value = _INTEGERS[place] if place < len(_INTEGERS) else 2 ** min(size, 62)
    return f"({value})" if value < 0 else str(value)


def _mapped(gene: Gene, written: Written) -> str:
    template = _ELEMENTS[gene.numbers[1] % len(_ELEMENTS)]
    text = write(gene.parts[0], written) if "{1}" in template else ""
    return written.bind(f"lists.range({2 ** min(gene.numbers[0], 20)}).map(i, {template.format('i', text)})")


def _doubled(gene: Gene, written: Written) -> str:
    name = written.bind(f"[{write(gene.parts[0], written)}]")
    for _ in range(min(gene.numbers[0], 20)):
        name = written.bind(f"{name} + {name}")
    return name


def _mapping(gene: Gene, written: Written) -> str:
    key = ("string(x)", "x", "x * 4294967296", "'a' + string(x)")[gene.numbers[1] % 4]
    value = ("x", "string(x)", "[x]", "{'k': x}", "double(x)", "dyn(x)", "'a'", "true", "null")[gene.numbers[2] % 9]
    return written.bind(f"lists.range({2 ** min(gene.numbers[0], 19)}).transformMapEntry(n, x, {{{key}: {value}}})")


_WRITERS: Final[Mapping[str, Callable[[Gene, Written], str]]] = {
    "text": _text,
    "same": _same,
    "pattern": lambda gene, _: f"'{gene.texts[0]}'",
    "int": _integer,
    "uint": lambda gene, _: f"{min(gene.numbers[0], 2**64 - 1)}u",
    "double": lambda gene, _: f"({_DOUBLES[gene.numbers[0] % len(_DOUBLES)]})",
    "bool": lambda gene, _: ("true", "false")[gene.numbers[0] % 2],
    "null": lambda *_: "null",
    "bytes": lambda gene, written: written.bind(f"bytes({write(gene.parts[0], written)})"),
    "dyn": lambda gene, written: f"dyn({write(gene.parts[0], written)})",
    "optional": lambda gene, written: f"optional.of({write(gene.parts[0], written)})",
    "type": lambda gene, _: _TYPES[gene.numbers[0] % len(_TYPES)],
    "format": lambda gene, _: f"format.{_NAMED_FORMATS[gene.numbers[0] % len(_NAMED_FORMATS)]}()",
    "mapped": _mapped,
    "doubled": _doubled,
    "mapping": _mapping,
}


def _plain(name: str) -> Mapping[str, Any]:
    return {"kind": "", "name": name, "parameters": ()}
