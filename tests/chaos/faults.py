"""What goes wrong with single requests of the extender to the API server."""

import asyncio
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.support.e2e.api_relay import Answer, ApiCall, Forward, refusal

# As long as the patience of one request is longer, a slow one is just slow.
LATENCY_SECONDS: Final = 0.4


@dataclass(frozen=True, slots=True)
class Rates:
    """How many requests of a hundred meet each fault."""

    conflict: float = 2.0
    error: float = 2.0
    error_after: float = 1.5
    busy: float = 1.0
    lost: float = 1.0
    lost_after: float = 1.0
    slow: float = 10.0


class Faults:
    """Refuses, fails, loses and delays requests at random; `counts` says how many of each.

    `..._after` means that the request took effect although its answer says nothing of the kind.  Conflicts meet writes of claims
    and bindings alone, as only these carry something to be in conflict with.
    """

    def __init__(self, random: Random, rates: Rates) -> None:
        self.counts: Counter[str] = Counter()
        self.calls = 0
        self.on = True
        self._random = random
        self._rates = rates

    async def __call__(self, call: ApiCall, forward: Forward) -> Answer:
        """See Handler."""
        self.calls += 1
        fault = self._choose(call) if self.on else ""
        if fault:
            self.counts[fault] += 1
        match fault:
            case "conflict":
                return refusal(409, "Conflict", "the object has been modified")
            case "error":
                return refusal(500, "InternalError", "etcdserver: request timed out")
            case "busy":
                return refusal(429, "TooManyRequests", "too many requests, please try again later")
            case "lost":
                return Answer(lost=True)
            case "slow":
                await asyncio.sleep(self._random.uniform(0, LATENCY_SECONDS))
        answer = await forward()
        if fault == "error_after":
            return refusal(500, "InternalError", "etcdserver: leader changed")
        return Answer(lost=True) if fault == "lost_after" else answer

    def _choose(self, call: ApiCall) -> str:
        """One fault or none; a failed renewal of a Lease is a fault, too."""
        dice = self._random.uniform(0, 100)
        for name in Rates.__dataclass_fields__:
            rate = getattr(self._rates, name)
            if dice < rate:
                return "" if name == "conflict" and call.write is None else name
            dice -= rate
        return ""
