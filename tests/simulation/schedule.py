"""What happens in a simulated world and when: the actions of users and drivers, and the faults, all chosen by the seed before.

Any of them can be left out, and the others stay as they are; that is how a failing seed shrinks.
"""

import random
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from tests.simulation.cluster import random_kind

NODES: Final = 2
SECONDS: Final = 30.0
"""How long users and faults are at work."""
_BEGIN: Final = 2.0
_REPLICAS: Final = ("replica-0", "replica-1")
_PROCESSES: Final = (*_REPLICAS, "api-server", "scheduler", "controllers", "kubelets", "drivers")
_LEASE_SECONDS: Final = 15.0


class Action(NamedTuple):
    """Something that happens at a moment: the name of a method of Course, and its arguments."""

    seconds: float
    name: str
    given: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.seconds:9.4f} s  {self.name}({', '.join(map(repr, self.given))})"


def schedule(seed: int) -> list[Action]:
    """All actions of a seed, in the order of their times."""
    chance = random.Random(f"schedule {seed}")
    return sorted([*_users(chance), *_drivers(chance), *_faults(chance)], key=lambda action: action.seconds)


def _users(chance: random.Random) -> Iterator[Action]:
    # Most pods come in bursts, so that they compete.
    bursts = [chance.uniform(_BEGIN, SECONDS) for _ in range(chance.randrange(1, 4))]
    for number in range(chance.randrange(6, 22)):
        name = f"pod-{number}"
        begin = chance.choice((chance.uniform(_BEGIN, SECONDS), *(burst + chance.expovariate(2.0) for burst in bursts)))
        # Claims that pods share have a few names, so that pods meet at them.
        kind = random_kind(chance)
        shared = f"common-{kind}-{chance.randrange(2)}" if chance.random() < 0.25 else ""
        yield Action(begin, "create_pod", (name, kind, shared))
        if chance.random() < 0.5:
            yield Action(begin + chance.expovariate(0.2), "delete_pod", (name,))
    for number in range(chance.choice((0, 0, 0, 2, 5))):
        begin = chance.uniform(_BEGIN, SECONDS)
        yield Action(begin, "place_rival", (f"rival-{number}",))
        if chance.random() < 0.3:
            yield Action(begin, "hold_watches", (chance.uniform(1.0, 6.0),))
        yield Action(begin + chance.uniform(1.0, 20.0), "delete_pod", (f"rival-{number}",))
    for number in range(chance.choice((0, 0, 1, 2))):
        yield Action(chance.uniform(_BEGIN, SECONDS), "create_hostile", (f"odd-{number}",))


def _drivers(chance: random.Random) -> Iterator[Action]:
    for _ in range(chance.choice((0, 0, 1, 3))):
        absent = chance.choice(((), ("whole-0",), ("mig-0", "vgpu-1"), ("shared-0", "whole-1")))
        yield Action(chance.uniform(_BEGIN, SECONDS), "publish", (f"node-{chance.randrange(NODES)}", absent))


def _faults(chance: random.Random) -> Iterator[Action]:
    # Some worlds have no faults, most have a few, some have many.
    # Few kinds of faults in one world, so that those that belong together meet.
    kinds = list(_FAULTS) if chance.random() < 0.4 else chance.sample(list(_FAULTS), 3)
    for _ in range(chance.choice((0, 1, 2, 3, 3, 4, 5, 8, 12))):
        name = chance.choices(kinds, [_FAULTS[kind][0] for kind in kinds])[0]
        yield Action(chance.uniform(0.0, SECONDS), name, _FAULTS[name][1](chance))


def _victim(chance: random.Random) -> str:
    """Mostly a replica."""
    return chance.choice((*_REPLICAS, *_REPLICAS, *_PROCESSES))


def _pair(chance: random.Random) -> tuple[str, str]:
    replica = chance.choice(_REPLICAS)
    return chance.choice(
        ((replica, "api-server"), ("api-server", replica), ("scheduler", replica), (replica, "scheduler"))
    )


def _pause(chance: random.Random) -> float:
    """Seconds: a moment, or longer than a lease."""
    return chance.choice(
        (chance.uniform(0.05, 1.0), chance.uniform(1.0, 9.0), _LEASE_SECONDS + chance.uniform(0.0, 5.0))
    )


_FAULTS: Final[dict[str, tuple[int, Any]]] = {
    "kill": (3, lambda chance: (_victim(chance), chance.choice((False, True)), chance.uniform(0.1, 6.0))),
    "kill_at_step": (4, lambda chance: (chance.choice(_REPLICAS), chance.randrange(1, 400), chance.uniform(0.1, 6.0))),
    "stop": (2, lambda chance: (chance.choice(_REPLICAS),)),
    "pause": (2, lambda chance: (_victim(chance), _pause(chance))),
    "pause_at_step": (5, lambda chance: (chance.choice(_REPLICAS), chance.randrange(1, 400), _pause(chance))),
    "cut": (2, lambda chance: (chance.random(),)),
    "block": (3, lambda chance: (*_pair(chance), chance.choice((0.5, 4.0, 8.0, 20.0)))),
    "slow": (2, lambda chance: (*_pair(chance), chance.choice((0.05, 0.5, 2.0)), chance.uniform(2.0, 20.0))),
    "jump": (1, lambda chance: (chance.choice(_REPLICAS), chance.choice((-3600.0, -5.0, 5.0, 3600.0)))),
    "suspend": (1, lambda chance: (chance.choice(_REPLICAS), _pause(chance))),
    "restart_api": (1, lambda chance: (chance.uniform(0.1, 5.0),)),
    "compact": (1, lambda chance: ()),
    "cut_watches": (2, lambda chance: ()),
    "hold_watches": (3, lambda chance: (chance.choice((0.3, 2.0, 6.0)),)),
    "deafen": (3, lambda chance: (chance.uniform(1.0, 6.0),)),
    "disturb": (4, lambda chance: (chance.choice((0.2, 0.6)), chance.uniform(1.0, 8.0))),
}
"""Name -> how often beside the others, and its arguments."""
