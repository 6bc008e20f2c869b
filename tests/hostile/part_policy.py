"""Part "policy": texts of YAML into the readers of the policy and of the settings."""

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene, changed, smaller
from tests.hostile.verdicts import BROKEN, GROWN, Job, Limit

MODULE: Final = "files"
READING: Final = Limit("stall", 2.0, "s")
"""An administrator's file may take longer to read than a tenant's text, but not without end."""
LIMITS: Final = (READING, GROWN, BROKEN)
_SCALARS: Final = (
    *("2026-13-45", "2026-02-30T25:61:61Z", "0001-01-01", "9999-99-99 99:99:99.9", "1:2:3", "190:20:30.15", "0x"),
    *("0b", "0o9", "!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!binary '*'"),
    *("!!python/object:os.system x", "!!set {a}", "!!null", "!!omap [a: 1]", "!!pairs [1]"),
    *("!<tag:yaml.org,2002:int> ''", "!local x", ".inf", ".nan", "-.inf", "1e999", "0b__", "_1", "~", "", "="),
    *("<<", "*a", "&a 1", "&a [*a]", "&a {b: *a}", "{<<: *a}", "<<: 1", "? x", "? [a]", "? {a: b}", "'x"),
    *('"\\x"', '"\\ud800"', "'\\0'", "\ud83d\ude00", "\u0000", "\u0085", "\ufeff", "%YAML 9.9", "--- a\n--- b"),
    *("...", "@a", "`", "\t", "|\n x", ">", "9" * 5000, "-" * 5000, "[" * 3000, "{a: " * 2000, "- " * 2000),
    *("? " * 1000, "0x" + "f" * 5000, "1_" * 3000, "1:" * 2000 + "1", "true", "1", "1.5", "a"),
    *("device.driver == 'a'", "1 / 0", "'a'.matches('(')", "[a, b]", "{a: b}", "!!str 1", "\ud800"),
)
_KEYS: Final = (
    *("rules", "name", "version", "driver", "pool", "devices", "counterSet", "compatibilityGroups"),
    *("physicalDevice", "bindingConditions", "bindingFailureConditions", "bindsToNode", "compatibleOnlyWith"),
    *("server", "scheduling", "cluster", "port", "host", "leader_election", "features", "log", "level"),
    *("hold_seconds", "duration_seconds", "policy_file", "kubeconfig", "<<", "1", "null", "true", "2026-13-45"),
    *("[a]", "{a: b}", "~", "!!int x", "''", "*a", "&b k", "? k", "1.5", "0x1"),
)
_BOMB: Final = "a: &a0 [x, x]\n" + "".join(f"b{n}: &a{n + 1} [*a{n}, *a{n}]\n" for n in range(25)) + "rules: *a25\n"


def _rule(random: Random) -> Gene:
    """A document that looks right, in which a few values are not."""
    pairs = tuple(
        Gene("pair", (random.randrange(len(_KEYS)), random.randrange(len(_SCALARS)), random.randrange(3)))
        for _ in range(random.randrange(1, 6))
    )
    return Gene("document", (random.randrange(4),), (), pairs)


def _raw(random: Random) -> Gene:
    """Characters of YAML in any order."""
    pieces = (
        *_SCALARS,
        *_KEYS,
        ": ",
        "\n",
        "\n  ",
        "- ",
        ", ",
        "[",
        "]",
        "{",
        "}",
        "#",
        "&a ",
        "*a",
        "!!",
        "'",
        '"',
        _BOMB,
    )
    return Gene("raw", (), ("".join(random.choice(pieces) for _ in range(random.randrange(1, 12))),))


_MAKERS: Final[tuple[Callable[[Random], Gene], ...]] = (_rule, _raw)


def text(gene: Gene) -> str:
    if gene.kind == "raw":
        return gene.texts[0]
    shape = gene.numbers[0] % 4
    lines = [_pair(part) for part in gene.parts]
    if shape == 0:
        return "rules:\n- name: a\n  " + "\n  ".join(lines)
    if shape == 1:
        return "server:\n  " + "\n  ".join(lines)
    return "\n".join(lines) if shape == 2 else f"rules: [{{{', '.join(lines)}}}]"


def _pair(gene: Gene) -> str:
    key, value, form = gene.numbers
    shown = _SCALARS[value % len(_SCALARS)]
    value_text = (shown, f"[{shown}]", f"{{a: {shown}}}")[form % 3]
    return f"{_KEYS[key % len(_KEYS)]}: {value_text}"


def _subject(kind: str, make: Callable[[Random], Gene]) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        if gene.kind == "raw":
            other = text(make(random))
            cut = random.randrange(len(gene.texts[0]) + 1)
            return replace(gene, texts=(gene.texts[0][:cut] + other,))
        return changed(random, gene, lambda _: None)

    def job(gene: Gene) -> Job:
        written = text(gene).encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
        return {"kind": kind, "text": written}

    name = f"{kind} {make.__name__.strip('_')}"
    return Subject(name, make, change, job, text, smaller)


PART: Final = Part(
    "policy",
    MODULE,
    lambda _: [(LIMITS, [_subject(kind, make) for kind in ("policy", "settings") for make in _MAKERS])],
    5.0,
)
"""Search for texts that are neither accepted nor refused in words."""
