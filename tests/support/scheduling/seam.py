"""Faults and races between the use cases and the cluster: a port of which chosen calls fail, or meet what happens just then."""

import inspect
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

from tests.support.scheduling.world import InMemoryExtender

Act = BaseException | Callable[[], object] | None
"""What happens at a call: an error is raised, a function called (and awaited), or nothing."""
ANY = "any"
"""Stands for the method of any call for which no act is given."""


class Seam:
    """Stands in front of a port; `calls` tells what was called, in order.

    The acts given for a method are used up one by one, by its first call, its second, and so on.
    """

    def __init__(self, inner: Any) -> None:
        self.calls: list[str] = []
        self._inner = inner
        self._before: dict[str, deque[Act]] = defaultdict(deque)
        self._after: dict[str, deque[Act]] = defaultdict(deque)

    def before(self, method: str, *acts: Act) -> "Seam":
        """Before the call takes effect; an error means that it never does."""
        self._before[method].extend(acts)
        return self

    def after(self, method: str, *acts: Act) -> "Seam":
        """After the call took effect; an error means that its answer is lost."""
        self._after[method].extend(acts)
        return self

    def mend(self) -> None:
        """Nothing more happens from now on."""
        self._before.clear()
        self._after.clear()

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._inner, name)
        if not callable(original):
            return original

        async def call(*arguments: Any) -> Any:
            self.calls.append(name)
            await _act(self._before[name] or self._before[ANY])
            answer = await original(*arguments)
            await _act(self._after[name] or self._after[ANY])
            return answer

        return call


def restart(world: InMemoryExtender, *, claims: Any = None, pods: Any = None) -> None:
    """A new process with these ports."""
    world.claims, world.pods = claims, pods
    world.start()


async def _act(acts: deque[Act]) -> None:
    act = acts.popleft() if acts else None
    if isinstance(act, BaseException):
        raise act
    if act is not None:
        done = act()
        if inspect.isawaitable(done):
            await done
