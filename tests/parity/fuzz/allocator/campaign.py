"""Clusters with claims, asked of both allocators."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final

from dra_extender.simulator.scenario import answer_line

from tests.parity.comparing import differences, verdict
from tests.parity.fuzz.allocator.chance import Json
from tests.parity.fuzz.allocator.scenarios import scenarios
from tests.parity.fuzz.allocator.shrinking import smallest
from tests.parity.fuzz.oracle import Oracle, OracleError

_BATCH: Final = 100
_MOST_SHOWN: Final = 10
_REMEMBERED: Final = "counters and groups of a pool are added up for each node, not remembered from an earlier node"
_STOPPED: Final = "upstream ran out of time"
_STOPPED_HERE: Final = "upstream finds an answer in time, we do not"


@dataclass
class Tally:
    """What a run found; `unexplained` are minimised, each with its first difference."""

    asked: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    unexplained: list[tuple[Json, str]] = field(default_factory=list)
    unexplained_count: int = 0

    def lines(self) -> Iterator[str]:
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.verdicts.most_common())
        total = sum(self.asked.values())
        yield f"allocator: {total} scenarios ({kinds} on single nodes); {self.unexplained_count} unexplained differences"
        yield "  " + ", ".join(f"{family} {count}" for family, count in sorted(self.asked.items()))
        for why, count in self.explained.most_common():
            yield f"  {count:6d} {why}"
        for scenario, what in self.unexplained:
            yield f"  {what}: {json.dumps(scenario)}"


def run(seed: int, *, seconds: float | None = None, count: int | None = None) -> Tally:
    """Compare until the time is up or so many scenarios were asked.

    Raises:
        BuildError: Upstream's program cannot be built.
        OracleError: It ended or hangs.
    """
    until = None if seconds is None else time.monotonic() + seconds
    tally = Tally()
    source = scenarios(seed)
    with Oracle("experimental") as oracle, ThreadPoolExecutor(1) as asking:
        pending = [next(source) for _ in range(_BATCH)]
        answers = asking.submit(oracle.ask, pending)
        while (count is None or tally.asked.total() < count) and (until is None or time.monotonic() < until):
            mine = [_ours(scenario) for scenario in pending]
            given, batch = answers.result(), pending
            pending = [next(source) for _ in range(_BATCH)]
            for scenario, answer, upstreams in zip(batch, mine, given, strict=True):
                _compare(oracle, tally, scenario, answer, upstreams)
            answers = asking.submit(oracle.ask, pending)
        answers.result()
    return tally


def _ours(scenario: Json) -> Json:
    found: Json = json.loads(answer_line(json.dumps(scenario).encode()))
    return found


def _compare(oracle: Oracle, tally: Tally, scenario: Json, mine: Json, upstreams: Json) -> None:
    tally.asked[scenario["name"].rsplit("-", 2)[0]] += 1
    tally.verdicts.update(verdict(node) for node in upstreams.get("nodes") or ())
    what = next(differences(upstreams, mine), None)
    if what is None:
        return
    why = _explanation(oracle, scenario, mine, upstreams)
    if why is not None:
        tally.explained[why] += 1
        return
    tally.unexplained_count += 1
    if len(tally.unexplained) < _MOST_SHOWN:
        small = smallest(scenario, lambda candidate: _differs(oracle, candidate))
        again = next(differences(oracle.ask([small])[0], _ours(small)), what)
        tally.unexplained.append((small, again))


def _explanation(oracle: Oracle, scenario: Json, mine: Json, upstreams: Json) -> str | None:
    """Why the answers may differ; None if they should not."""
    for answer, why in ((upstreams, _STOPPED), (mine, _STOPPED_HERE)):
        if any(node.get("timedOut") for node in answer.get("nodes") or ()):
            return why
    alone: list[dict[str, Any]] = [{**scenario, "nodes": [node]} for node in scenario["nodes"]]
    if len(alone) > 1 and mine.get("nodes"):
        single = [node for each in oracle.ask(alone) for node in each.get("nodes") or ()]
        if next(differences({**upstreams, "nodes": single}, mine), None) is None:
            return _REMEMBERED
    return None


def _differs(oracle: Oracle, scenario: Json) -> bool:
    try:
        upstreams = oracle.ask([scenario])[0]
    except OracleError:
        return False  # it does not survive what is left
    mine = _ours(scenario)
    if next(differences(upstreams, mine), None) is None:
        return False
    return _explanation(oracle, scenario, mine, upstreams) is None
