"""Stops binds between two of their writes to the API server."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.support.e2e.api_relay import BINDING, Answer, ApiCall, Forward

_FOR_EXTENDED: Final = "-extended-resources-"


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place in a bind: before its write with this number, or after it, when the extender does not know that it happened."""

    write: int
    after: bool

    def __str__(self) -> str:
        return f"{'after' if self.after else 'before'}-{self.write}"


def every_boundary(steps: Mapping[str, Sequence[str]], kinds: Sequence[str]) -> dict[str, tuple[str, Boundary]]:
    """A pod, by name, for each side of each write of each of these kinds, given the writes by kind."""
    return {
        f"{kind}-{number}-{'after' if after else 'before'}": (kind, Boundary(number, after))
        for kind in kinds
        for number in range(len(steps[kind]))
        for after in (False, True)
    }


class Boundaries:
    """Lets the writes for each pod through up to its boundary; then it and all that follows wait for `release` or `lose`.

    Claims belong to the pod whose name their own begins with, up to a dot, or to what is appended for extended resources.
    `steps` are the writes that came, by pod.
    """

    def __init__(self, plan: Mapping[str, Boundary] | None = None) -> None:
        self.steps: dict[str, list[str]] = {}
        self.reached: set[str] = set()
        self._plan = plan or {}
        self._stopped: set[str] = set()
        self._go = asyncio.Event()
        self._lost = False

    async def all_reached(self) -> bool:
        """Whether every planned bind has come to its boundary (for `wait_for`)."""
        return self.reached >= self._plan.keys()

    @property
    def missing(self) -> dict[str, list[str]]:
        """What came of the pods that have not reached their boundary."""
        return {f"{pod} {at}": self.steps.get(pod, []) for pod, at in self._plan.items() if pod not in self.reached}

    def release(self) -> None:
        """Let everything through that waits."""
        self._go.set()

    def lose(self) -> None:
        """Close the connections of everything that waits, unanswered; what stands before its boundary is not written."""
        self._lost = True
        self._go.set()

    async def __call__(self, call: ApiCall, forward: Forward) -> Answer:
        """See Handler."""
        write = call.write
        if write is None:
            return await forward()
        pod = write.name.partition(".")[0].partition(_FOR_EXTENDED)[0]
        if pod in self._stopped:
            return await self._held(forward, None)
        steps = self.steps.setdefault(pod, [])
        number = len(steps)
        steps.append(write.step)
        at = self._plan.get(pod)
        if at is None or at.write != number:
            return await forward()
        self._stopped.add(pod)
        answer = await forward() if at.after else None
        self.reached.add(pod)
        return await self._held(forward, answer)

    async def _held(self, forward: Forward, answer: Answer | None) -> Answer:
        await self._go.wait()
        if self._lost:
            return Answer(lost=True)
        return await forward() if answer is None else answer


class Turnstile:
    """Lets so many Bindings of each gang through, and keeps all that follow until the process that posts them has gone."""

    def __init__(self, lets_through: Mapping[str, int]) -> None:
        """`lets_through`: by gang, which is what the names of its members begin with, up to a hyphen."""
        self.came: Counter[str] = Counter()
        self._lets_through = lets_through

    async def __call__(self, call: ApiCall, forward: Forward) -> Answer:
        """See Handler."""
        if call.write is None or call.write.step != BINDING:
            return await forward()
        gang = call.write.name.partition("-")[0]
        self.came[gang] += 1
        if self.came[gang] <= self._lets_through[gang]:
            return await forward()
        await asyncio.Event().wait()
        raise AssertionError
