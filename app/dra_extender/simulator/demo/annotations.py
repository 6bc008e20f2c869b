"""The annotations that control a story: read from a manifest, with a sentence for each that makes no sense."""

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dra_extender.manifests.documents import FieldPath
from dra_extender.manifests.problems import shown
from dra_extender.simulator.demo.document import Action
from dra_extender.simulator.demo.expectations import ExpectationError, PodExpectation, read_expectation

PREFIX: Final = "dra-extender.io/"
DEMO: Final = f"{PREFIX}demo"
EXPECT: Final = f"{PREFIX}expect"
EXPECT_AT_END: Final = f"{PREFIX}expect-at-end"
COPIES: Final = f"{PREFIX}copies"
_CONTROLLING: Final = (DEMO, EXPECT, EXPECT_AT_END, COPIES)
_OTHERS: Final = tuple(f"{PREFIX}{each}" for each in ("lint", "allocation-snapshot", "guard", "device", "woken-at"))
"""Annotations of other commands, and those that the service writes."""
_MISSPELT: Final = 0.85
MOST_COPIES: Final = 1000
_MOST_DIGITS: Final = 18
ANNOTATIONS: Final[FieldPath] = ("metadata", "annotations")


class AnnotationProblem(NamedTuple):
    """What is wrong with an annotation, by its name."""

    name: str
    text: str


class Controls(NamedTuple):
    """What the annotations of one object say."""

    action: Action = Action.APPLY
    expect: PodExpectation | None = None
    expect_at_end: PodExpectation | None = None
    copies: int | None = None


def controls_of(annotations: Mapping[str, Any], *, is_pod: bool, problems: list[AnnotationProblem]) -> Controls:
    """Read them, and add what is wrong to the problems.

    Args:
        annotations: All annotations of the object.
        is_pod: Whether expectations and copies make sense.
        problems: A sentence is added for each annotation that makes no sense.
    """
    reader = _Reader(annotations, problems, is_pod=is_pod)
    problems.extend(_unknown(annotations))
    return Controls(reader.action(), reader.expectation(EXPECT), reader.expectation(EXPECT_AT_END), reader.copies())


def _unknown(annotations: Mapping[str, Any]) -> Iterator[AnnotationProblem]:
    """Annotations with our prefix that nobody reads, and those that look like a misspelt one."""
    for name in annotations:
        if name in _CONTROLLING or name in _OTHERS:
            continue
        close = difflib.get_close_matches(name, _CONTROLLING, n=1, cutoff=_MISSPELT)
        if close:
            yield AnnotationProblem(name, f"unknown annotation; did you mean {close[0]!r}?")
        elif name.startswith(PREFIX):
            yield AnnotationProblem(name, f"unknown annotation; expected one of {', '.join(_CONTROLLING)}")


class _Reader:
    def __init__(self, annotations: Mapping[str, Any], problems: list[AnnotationProblem], *, is_pod: bool) -> None:
        self._annotations = annotations
        self._problems = problems
        self._is_pod = is_pod

    def action(self) -> Action:
        text = self._annotations.get(DEMO)
        if text is None:
            return Action.APPLY
        try:
            return Action(text)
        except ValueError:
            self._problem(DEMO, f"expected one of {', '.join(Action)}, got {shown(text)}")
            return Action.APPLY

    def copies(self) -> int | None:
        text = self._annotations.get(COPIES)
        if text is None:
            return None
        if self._is_pod and isinstance(text, str) and _is_number(text) and 0 < int(text) <= MOST_COPIES:
            return int(text)
        self._problem(COPIES, f"expected on pods only, a number from 1 to {MOST_COPIES} as text, got {shown(text)}")
        return None

    def expectation(self, name: str) -> PodExpectation | None:
        text = self._annotations.get(name)
        if text is None:
            return None
        if not self._is_pod:
            self._problem(name, "expected on pods only")
            return None
        try:
            return read_expectation(text)
        except ExpectationError as problem:
            self._problem(name, str(problem))
            return None

    def _problem(self, name: str, text: str) -> None:
        self._problems.append(AnnotationProblem(name, text))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
