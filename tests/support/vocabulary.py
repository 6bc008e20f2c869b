"""The words that the program does not use, with what it says instead; `python -m tests.support.vocabulary` shows where they are."""

import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from dra_extender.allocator.state.rejection import Code
from dra_extender.config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "dra_extender"

IDENTIFIERS: Final[Mapping[str, str]] = {
    "alike": "symmetry class, equivalent",
    "anybody": "the actor's name",
    "aside": "locked, reserved",
    "asking": "requester, calling pod",
    "board": "partial assignment",
    "calm": "error-safe",
    "choosy": "with compatibility rules",
    "cool_down": "backoff",
    "cool_downs": "backoff",
    "enough": "insufficient, max_feasible, the amount",
    "everybody": "the actor's name",
    "give_back": "release",
    "given_back": "released",
    "giving_back": "releasing",
    "heard": "received",
    "helpful": "queueing hint",
    "hopeless": "infeasible",
    "hung_up": "disconnected",
    "judging": "evaluating",
    "left_over": "existing, remaining",
    "likeness": "equivalence",
    "making": "creating, creation",
    "merits": "score terms",
    "mine": "own",
    "nobody": "none, no consumer",
    "nudge": "recheck",
    "outlook": "pruning index",
    "patience": "timeout",
    "promise": "deferred hold",
    "promised": "deferred",
    "remembered": "cached",
    "rival": "competing",
    "rivals": "competing",
    "roll": "gang snapshot",
    "seat": "assignment",
    "seated": "assigned",
    "seats": "assignments",
    "settle": "narrow, end pending, resolve",
    "settled": "narrowed, ended, resolved",
    "somebody": "the actor's name",
    "standing": "verdict, state",
    "standings": "verdicts, states",
    "surplus": "releasable",
    "take_back": "release, withdraw",
    "taken_back": "released, withdrawn",
    "tell": "notify, announce, report, publish",
    "telling": "notification, announcement, report",
    "theirs": "other",
    "told": "notified, announced, recorded",
    "took": "allocated, acquired",
    "trouble": "problem",
    "troubles": "problems",
    "turned_away": "rejected",
    "twin": "placement template",
    "twins": "placement templates",
    "unsettled": "multi-node, pending",
    "usual": "fast path, default",
    "vain": "dead ends",
    "whoever": "the actor's name",
    "wish": "bound",
    "wishes": "bounds",
    "words": "message",
}
"""Words in names, in a row where there are several: `is_hopeless` and `HopelessBranch` both have the word hopeless."""

PHRASES: Final[Mapping[str, str]] = {
    "alike": "equal, equivalent, both",
    "anybody": "the actor's name",
    "are told": "learn, record, report",
    "cool-down": "backoff",
    "cool-downs": "backoff",
    "everybody": "the actor's name, all",
    "for whom": "whose, for which consumer",
    "gave back": "released, returned",
    "give back": "release, return",
    "given back": "released, returned",
    "gives back": "releases, returns",
    "hangs up": "disconnects",
    "hopeless": "infeasible",
    "hung up": "disconnected",
    "in vain": "without result",
    "in words": "as a sentence, as a message",
    "is told": "learns, records, reports",
    "judging": "evaluating",
    "kep has it": "in the KEP, by the KEP",
    "leave alone": "skip, do not choose",
    "leaves alone": "skips, does not choose",
    "left alone": "skipped, in backoff",
    "left over": "remaining, existing",
    "likeness": "equivalence",
    "nudge": "recheck",
    "of which": "a sentence of its own",
    "outlook": "pruning index",
    "rooms": "packages",
    "set aside": "locked, reserved",
    "settle": "narrow, end, resolve",
    "settled": "narrowed, ended, resolved",
    "settles": "narrows, ends, resolves",
    "somebody": "the actor's name",
    "take back": "release, withdraw",
    "taken back": "released, withdrawn",
    "takes back": "releases, withdraws",
    "to whom": "to which ...",
    "told": "reported, recorded, announced, distinguished",
    "took back": "released, withdrew",
    "turned away": "rejected",
    "unsettled": "multi-node, pending",
    "upstream has it": "as in upstream",
    "whoever": "the actor's name, a caller that",
}
"""Whole words in docstrings, comments, help texts and documents."""

HELP: Final = ("cli/", "config/settings.py", "telemetry/")
"""Modules whose sentences users read as help; texts of refusals and Events in other modules follow later."""

_PART: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_PHRASE: Final = re.compile(
    r"\b(?:" + "|".join(sorted(PHRASES, key=len, reverse=True)).replace(" ", r"\s+(?:#\s*)?") + r")\b", re.IGNORECASE
)
_CODE_SPAN: Final = re.compile(r"`[^`\n]*`")
"""Names, which are checked where they are defined, and public values such as those of labels."""
_BEFORE_DOCSTRING: Final = frozenset({tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT})
_PUBLIC: Final = frozenset(
    name for field in Settings.model_fields.values() for name in getattr(field.annotation, "model_fields", ())
) | frozenset((*Code.__members__, "break_long_words"))
"""Names of settings, labels of metrics, and a parameter of the standard library."""


class VocabularyFinding(NamedTuple):
    """A word that the program does not use, and where it stands."""

    file: str
    line: int
    found: str
    instead: str


def findings() -> Iterator[VocabularyFinding]:
    """Everything in the code and the documents; names of settings and labels of metrics stay, because they are public."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield from _in_code(path)
    for pattern in ("*.md", "docs/**/*.md", "deploy/**/*.yaml", "helm/**/*.yaml", "helm/**/*.md"):
        for path in sorted(ROOT.glob(pattern)):
            yield from _phrases(path, 1, path.read_text())


def _in_code(path: Path) -> Iterator[VocabularyFinding]:
    relative = path.relative_to(PACKAGE).as_posix()
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        line = token.start[0]
        if token.type == tokenize.NAME and token.string not in _PUBLIC:
            parts = f"_{'_'.join(_PART.findall(token.string))}_".lower()
            for words, instead in IDENTIFIERS.items():
                if f"_{words}_" in parts:
                    yield VocabularyFinding(_name(path), line, token.string, instead)
        is_docstring = token.type == tokenize.STRING and before in _BEFORE_DOCSTRING
        is_help = token.type == tokenize.STRING and relative.startswith(HELP) and " " in token.string
        if token.type == tokenize.COMMENT or is_docstring or is_help:
            yield from _phrases(path, line, token.string)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type


def _phrases(path: Path, line: int, text: str) -> Iterator[VocabularyFinding]:
    for match in _PHRASE.finditer(_CODE_SPAN.sub(lambda span: "`" * len(span[0]), text)):
        found = " ".join(match[0].replace("#", " ").lower().split())
        yield VocabularyFinding(_name(path), line + text.count("\n", 0, match.start()), found, PHRASES[found])


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def main() -> int:
    """Print what stands where, with its replacement."""
    found = list(findings())
    for each in found:
        sys.stdout.write(f"{each.file}:{each.line}: {each.found}: say {each.instead}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
