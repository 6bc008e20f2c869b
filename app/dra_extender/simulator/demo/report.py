"""A story for people: what happened after each document, where every pod is or why it waits, and what was expected."""

import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dra_extender.model.api_json import printable
from dra_extender.simulator.demo.results import (
    ApplyEffect,
    CheckedExpectation,
    ClaimUse,
    PodState,
    StoryResult,
    StoryStep,
)

_MOST_PODS: Final = 8
_MANY_PODS: Final = 20
_STYLE = {ApplyEffect.DELETED: "magenta", ApplyEffect.REFUSED: "bold red", ApplyEffect.UNCHANGED: "dim"}


class StoryReport:
    """Prints stories to a console; colours appear on a terminal only, lines fit the console's width."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_full = False

    def title(self, text: str) -> None:
        self._console.print()
        self._console.rule(Text(text, style="bold"), align="left", characters="=")

    def warnings(self, warnings: Iterable[str]) -> None:
        for warning in warnings:
            self._line(f"warning: {warning}", "yellow")

    def step(self, step: StoryStep) -> None:
        if step.narration:
            self._console.print()
            for paragraph in _paragraphs(step.narration):
                self._line(paragraph, "cyan", indent=0)
        self._line(f"{step.subject} {step.effect}", _STYLE.get(step.effect, "default"))
        if step.refusal:
            self._line(step.refusal, "red", indent=6)
        for state in step.pods[:_MOST_PODS]:
            for text, style in pod_lines(state):
                self._line(text, style, indent=6)
        if len(step.pods) > _MOST_PODS:
            self._line(f"and {more_pods(step.pods[_MOST_PODS:])}", "default", indent=6)
        for text in step.problems:
            self._line(f"trouble: {text}", "red", indent=6)
        if step.checked is not None:
            self._check(step.checked)

    def end(self, result: StoryResult) -> None:
        """Print the table of pods, and the expectations about the end."""
        self._console.print()
        table = Table(show_edge=False, pad_edge=False, show_lines=False)
        table.add_column("pod", overflow="fold")
        table.add_column("node", overflow="fold")
        table.add_column("claim -> devices, or why it waits", overflow="fold", ratio=1)
        for state, more in group_equal(result.pods):
            what = "\n".join(map(claim_text, state.claims)) if state.node else state.message
            table.add_row(
                Text(state.pod + (f" and {more} more" if more else "")),
                Text(state.node or "waiting", "green" if state.node else "yellow"),
                Text("\n".join(map(printable, what.splitlines()))),
            )
        self._console.print(table)
        self._in_full = True
        for checked in result.at_end:
            self._check(checked)

    def line(self, name: str, subject: str, result: StoryResult) -> None:
        """Print a story in one line: whether its expectations hold, its name and subject; then what failed."""
        text = f"{'FAILED' if result.failures else 'ok':<6} {name:<32} {subject}".rstrip()
        width = max(self._console.width, 40)
        if self._in_full:
            self._console.print()
            self._in_full = False
        text = printable(text)
        cut = text if len(text) < width else f"{text[: width - 2].rstrip()}…"
        self._console.print(Text(cut, "bold red" if result.failures else "green"), soft_wrap=True)
        for step in result.steps:
            if step.refusal:
                self._line(f"line {step.line}: {step.subject} {step.effect}: {step.refusal}", "red", indent=6)
        for checked in result.checks:
            if checked.failure is not None:
                self._check(checked)

    def summary(self, results: list[StoryResult]) -> None:
        checks = [check for result in results for check in result.checks]
        failed, refused = sum(result.failures for result in results), sum(result.refused for result in results)
        met = sum(check.failure is None for check in checks)
        text = f"{len(results)} {'story' if len(results) == 1 else 'stories'}, {met} of {len(checks)} expectations hold"
        if failed:
            text += f", {failed} failed"
        if refused:
            text += f" ({refused} {'document' if refused == 1 else 'documents'} refused)"
        self._console.print()
        self._line(text, "bold red" if failed else "bold green", indent=0)

    def _check(self, checked: CheckedExpectation) -> None:
        when = " at the end" if checked.at_end else ""
        if checked.failure is None:
            self._line(f"ok: {checked.pod} {checked.expected}{when}", "green", indent=6)
        else:
            self._line(
                f"FAILED: {checked.pod} expected {checked.expected}{when}: {checked.failure}", "bold red", indent=6
            )

    def _line(self, text: str, style: str, indent: int = 2) -> None:
        width = max(self._console.width, 40)
        lines = [
            wrapped
            for line in (map(printable, text.splitlines() or [""]))
            for wrapped in textwrap.wrap(
                line, width - 1, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2 * bool(indent))
            )
            or [""]
        ]
        self._console.print(Text("\n".join(lines), style), soft_wrap=True)


def as_json(results: list[StoryResult]) -> str:
    """Return the results for programs: {"stories": [...], "failures": n}; the fields are those of `StoryResult`."""
    document = {"stories": results, "failures": sum(result.failures for result in results)}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _paragraphs(lines: tuple[str, ...]) -> list[str]:
    """Comment lines as running text: an indented line and a list item begin a line of their own."""
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1] and line and line[0] not in " *-":
            joined[-1] += f" {line}"
        else:
            joined.append(line)
    return joined


def pod_lines(state: PodState) -> Iterator[tuple[str, str]]:
    if state.node is not None:
        yield f"{state.pod} -> {state.node}", "green"
        for claim in state.claims:
            yield f"  {claim_text(claim)}", "default"
        return
    yield f"{state.pod} waits: {state.message or 'not tried yet'}", "yellow"
    for node, reason in state.reasons.items():
        yield f"  {node}: {reason}", "default"
    for detail in state.details:
        yield f"  details: {detail}", "dim"


def more_pods(states: Sequence[PodState]) -> str:
    """Return how many pods went where, e.g. `298 more pods: 149 on node-1, 149 on node-2`."""
    where = Counter(f"on {state.node}" if state.node else "waiting" for state in states)
    return f"{len(states)} more pods: " + ", ".join(f"{count} {place}" for place, count in sorted(where.items()))


def group_equal(states: Sequence[PodState]) -> list[tuple[PodState, int]]:
    """Return each pod, or where they are many one pod per place and devices, and how many more pods equal it."""
    if len(states) <= _MANY_PODS:
        return [(state, 0) for state in states]
    groups: dict[object, tuple[PodState, int]] = {}
    for state in states:
        key = (state.node, state.message, tuple(map(claim_text, state.claims)))
        first, more = groups.get(key, (state, -1))
        groups[key] = (first, more + 1)
    return list(groups.values())


def claim_text(claim: ClaimUse) -> str:
    """Return a claim and its devices, e.g. `gpu: gpu-0-mig-0 [gpu-0-counters: mig]`."""
    devices = []
    for device in claim.devices:
        sets = "; ".join(
            f"{name}: {' '.join(groups)}" if groups else name for name, groups in device.counter_sets.items()
        )
        devices.append(f"{device.device} [{sets}]" if sets else device.device)
    return f"{claim.name}: {', '.join(devices) or 'nothing allocated'}"
