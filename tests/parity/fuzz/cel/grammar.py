"""What expressions are made of: for each type its templates, with holes for parts of other types, and its leaves."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

_SHORT: Final = {
    "%A": 'device.attributes["gpu.example.com"]',
    "%O": 'device.attributes["other.example.com"]',
    "%C": 'device.capacity["gpu.example.com"]',
}


class Rules(NamedTuple):
    """The grammar, by type."""

    templates: Mapping[str, Sequence[str]]
    leaves: Mapping[str, Sequence[str]]


@cache
def rules() -> Rules:
    """Read the grammar, which grammar.tsv explains; the files beside it add to it."""
    templates: dict[str, list[str]] = {}
    leaves: dict[str, list[str]] = {}
    files = sorted(Path(__file__).parent.glob("grammar*.tsv"))
    for line in (line for file in files for line in file.read_text(encoding="utf-8").splitlines()):
        if line.startswith("#"):
            continue
        kind, _, rule = line.partition("\t")
        for short, long in _SHORT.items():
            rule = rule.replace(short, long)
        (leaves if rule.startswith("=") else templates).setdefault(kind, []).append(rule.removeprefix("="))
    return Rules(templates, leaves)
