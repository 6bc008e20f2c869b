"""What happens in a simulated world and when: the actions of users and drivers, and the faults, all chosen by the seed before.

Each seed draws what there is in its world, and how much: some are calm but for one kind of fault, some have everything.
Any action can be left out, and the others stay as they are; that is how a failing seed shrinks.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from tests.simulation.cluster import DEVICES, KINDS, SLOW, WHOLE
from tests.simulation.moments import BIND, CALLED, CLAIM, FILTER, MOMENTS

SECONDS: Final = 30.0
"""How long users and faults are at work."""
IT: Final = "*"
"""In an aimed fault: the replica, or the object, whose moment it is."""
_BEGIN: Final = 2.0
_REPLICAS: Final = ("replica-0", "replica-1")
_PROCESSES: Final = (*_REPLICAS, "api-server", "scheduler", "controllers", "kubelets", "drivers")
_LEASE_SECONDS: Final = 15.0
_WATCHED: Final = ("resourceclaims", "resourceclaims", "resourceclaims", "pods", "nodes", "resourceslices", "")


class Action(NamedTuple):
    """Something that happens at a moment: the name of a method of Course, and its arguments."""

    seconds: float
    name: str
    given: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.seconds:9.4f} s  {self.name}({', '.join(map(repr, self.given))})"


class Setting(NamedTuple):
    """What there is: nodes, devices that none of them has, how much each kind of request is asked for, and shares of pods.

    `shared` use a claim that others may use, `deleted` are deleted, `completing` end on their own.  `lag`: how much slower than
    usual everybody else learns of changes.  `bursts`: seconds at which most pods come, so that they compete, and most faults.
    """

    nodes: int
    lacking: frozenset[str]
    kinds: dict[str, float]
    shared: float
    deleted: float
    completing: float
    lag: float
    bursts: tuple[float, ...]


def setting(seed: int) -> Setting:
    chance = random.Random(f"setting {seed}")
    nodes = chance.choice((1, 1, 2, 3))
    lacking = chance.sample(DEVICES, chance.choice((0, 3, 5, 7)))
    if _is_story(seed):
        # What the situation needs is there, and no more than most of those who want it can have.
        nodes, lacking = 2, []
    # Kinds of which no node has a device are asked for, too, but not often.
    wanted = chance.sample(KINDS, chance.choice((1, 2, 3, 6)))
    kinds = {kind: chance.choice((1.0, 2.0, 5.0)) if kind in wanted else 0.05 for kind in KINDS}
    return Setting(
        nodes,
        frozenset(lacking),
        kinds,
        chance.choice((0.0, 0.25, 0.7)),
        chance.choice((0.0, 0.4, 0.8)),
        chance.choice((0.0, 0.5, 0.9)),
        chance.choice((1.0, 1.0, 6.0)),
        tuple(chance.uniform(_BEGIN, SECONDS) for _ in range(chance.randrange(1, 4))),
    )


def schedule(seed: int) -> list[Action]:
    """All actions of a seed, in the order of their times."""
    world, chance = setting(seed), random.Random(f"schedule {seed}")
    if _is_story(seed):
        return sorted(_story(world, chance), key=lambda action: action.seconds)
    parts = (_pods, _claims, _gangs, _rivals, _hostile, _slices, _nodes, _faults, _aimed, _failing_gangs, _stories)
    actions = [action for part in parts for action in part(world, random.Random(f"{part.__name__} {chance.random()}"))]
    return sorted(actions, key=lambda action: action.seconds)


def _is_story(seed: int) -> bool:
    """Whether nothing else happens in the world of a seed than one story."""
    return random.Random(f"story {seed}").random() < _STORIES_ALONE


def _moment(world: Setting, chance: random.Random) -> float:
    """A time at which anything may happen, or one just after a burst begins."""
    return chance.choice(
        (chance.uniform(_BEGIN, SECONDS), *(burst + chance.expovariate(2.0) for burst in world.bursts))
    )


def _kind(world: Setting, chance: random.Random) -> str:
    return chance.choices(list(world.kinds), list(world.kinds.values()))[0]


def _pods(world: Setting, chance: random.Random) -> Iterator[Action]:
    pairs = chance.choice((0.0, 0.0, 0.3))
    for number in range(chance.randrange(6, 20)):
        name, kind = f"pod-{number}", _kind(world, chance)
        begin = _moment(world, chance)
        # Claims that pods share have a few names, so that pods meet at them.
        shared = f"common-{kind}-{chance.randrange(2)}" if chance.random() < world.shared else ""
        more = _kind(world, chance) if not shared and chance.random() < pairs else ""
        yield Action(begin, "create_pod", (name, kind, shared, more))
        if chance.random() < world.deleted:
            yield Action(begin + chance.expovariate(chance.choice((0.2, 2.0))), "delete_pod", (name,))


def _claims(world: Setting, chance: random.Random) -> Iterator[Action]:
    """Shared claims are deleted, and made again by the next pod that uses them."""
    for _ in range(chance.choice((0, 2, 4)) if world.shared else 0):
        name = f"common-{_kind(world, chance)}-{chance.randrange(2)}"
        yield Action(chance.uniform(_BEGIN, SECONDS), "delete_claim", (name,))


def _gangs(world: Setting, chance: random.Random) -> Iterator[Action]:
    for number in range(chance.choice((0, 0, 0, 1, 2))):
        # Members whose devices take long to be ready wait the longest.
        kind = SLOW if chance.random() < 0.4 else _kind(world, chance)
        name, size = f"gang-{number}", chance.randrange(2, 4)
        begin, spread = chance.uniform(_BEGIN, SECONDS), chance.choice((0.2, 4.0, 12.0))
        yield Action(begin, "create_gang", (name, size, kind if chance.random() < 0.4 else ""))
        for member in range(size):
            yield Action(begin + chance.uniform(0.0, spread), "create_member", (name, f"{name}-{member}", kind))
        if chance.random() < 0.3:
            yield Action(begin + chance.uniform(0.0, 20.0), "delete_pod", (f"{name}-0",))


def _failing_gangs(_world: Setting, chance: random.Random) -> Iterator[Action]:
    """A member has its device and waits for another, whose device is not ready; then its own fails."""
    if chance.random() < 0.1:
        name, begin = "failing", chance.uniform(_BEGIN, SECONDS - 10.0)
        yield Action(begin, "create_gang", (name, 2, ""))
        for member in range(2):
            yield Action(begin + chance.uniform(0.0, 0.2), "create_member", (name, f"{name}-{member}", SLOW))
        for _ in range(2):
            yield Action(begin + chance.uniform(1.0, 6.0), "fail_device", ())


def _rivals(world: Setting, chance: random.Random) -> Iterator[Action]:
    for number in range(chance.choice((0, 0, 0, 4, 7))):
        begin = _moment(world, chance)
        shared = f"rival-common-{chance.randrange(2)}" if chance.random() < 0.3 else ""
        yield Action(begin, "place_rival", (f"rival-{number}", shared))
        if shared:
            yield Action(begin + chance.uniform(-0.5, 3.0), "create_pod", (f"with-{number}", "whole", shared, ""))
        if chance.random() < 0.6:
            # Pods want the same devices before anybody is told that the rival has one.
            seconds = chance.uniform(2.0, 9.0)
            yield Action(begin, "hold_watches", (seconds, "resourceclaims"))
            for other in range(2):
                name = f"beside-{number}-{other}"
                yield Action(begin + chance.uniform(0.0, seconds), "create_pod", (name, "whole", "", ""))
        yield Action(begin + chance.uniform(1.0, 20.0), "delete_pod", (f"rival-{number}",))


def _hostile(_world: Setting, chance: random.Random) -> Iterator[Action]:
    for number in range(chance.choice((0, 0, 0, 1, 2))):
        yield Action(chance.uniform(_BEGIN, SECONDS), "create_hostile", (f"odd-{number}",))


def _slices(world: Setting, chance: random.Random) -> Iterator[Action]:
    for _ in range(chance.choice((0, 0, 1, 3))):
        absent = tuple(chance.sample(DEVICES, chance.choice((0, 1, 3, 10))))
        yield Action(chance.uniform(_BEGIN, SECONDS), "publish", (_node(world, chance), absent))
    for _ in range(chance.choice((0, 0, 3))):
        yield Action(chance.uniform(_BEGIN, SECONDS), "fail_device", ())


def _nodes(world: Setting, chance: random.Random) -> Iterator[Action]:
    if chance.random() < 0.2:
        yield Action(chance.uniform(_BEGIN, SECONDS), "taint_all", ())
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        begin, node = chance.uniform(_BEGIN, SECONDS), _node(world, chance)
        name, back = chance.choice((("cordon", "uncordon"), ("taint", "uncordon"), ("remove_node", "add_node")))
        yield Action(begin, name, (node,))
        yield Action(begin + chance.uniform(2.0, 25.0), back, (node,))


def _node(world: Setting, chance: random.Random) -> str:
    return f"node-{chance.randrange(world.nodes)}"


def _faults(world: Setting, chance: random.Random) -> Iterator[Action]:
    # Few kinds of faults in one world, so that those that belong together meet.
    kinds = list(_FAULTS) if chance.random() < 0.3 else chance.sample(list(_FAULTS), chance.choice((1, 2, 3)))
    for _ in range(chance.choice((0, 1, 2, 3, 4, 5, 8, 12))):
        name = chance.choices(kinds, [_FAULTS[kind][0] for kind in kinds])[0]
        yield Action(_moment(world, chance), name, _FAULTS[name][1](chance))


def _aimed(world: Setting, chance: random.Random) -> Iterator[Action]:
    """One or several faults at the moment at which a certain request is sent."""
    moments = chance.sample(MOMENTS, 2)
    for _ in range(chance.choice((0, 1, 2, 4))):
        moment = chance.choice(moments)
        table = _AT_CALLS if moment in CALLED else _AT_REQUESTS
        names = chance.sample(list(table), chance.choice((1, 2, 3)))
        faults = tuple((name, table[name](chance)) for name in names)
        if moment in CALLED and chance.random() < 0.5:
            # What happens at a call then happens before the next call of the pod.
            faults = (("pause", ("scheduler", chance.uniform(1.0, 9.0))), *faults)
        yield Action(max(0.0, _moment(world, chance) - 1.0), "aim", (moment, chance.choice((1, 1, 2, 5)), faults))


def _stories(world: Setting, chance: random.Random) -> Iterator[Action]:
    if chance.random() < 0.2:
        yield from _story(world, chance)


def _story(world: Setting, chance: random.Random) -> Iterator[Action]:
    """A situation in which protections matter that chance alone hardly brings about: several things happen in one order.

    The claims are known before, so that a watch of claims that is held back keeps no pod from being placed.
    """
    story, begin = chance.choice(_STORIES), chance.uniform(_BEGIN, 12.0)
    for number in range(_KNOWN):
        yield Action(begin, "create_claim", (f"known-{number}", WHOLE))
    yield from story(world, chance, begin + 1.0)


_STORIES_ALONE: Final = 0.1
"""Share of worlds in which nothing else happens than such a situation."""
_KNOWN: Final = 5


def _with_known(begin: float, *numbers: int) -> Iterator[Action]:
    for number in numbers:
        yield Action(begin, "create_pod", (f"knows-{number}", WHOLE, f"known-{number}", ""))


def _competitors(chance: random.Random, begin: float) -> Iterator[Action]:
    for number in range(1, _KNOWN):
        yield from _with_known(begin + chance.uniform(0.0, 6.0), number)


def _unanswered_allocation(_world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """An allocation is stored and nobody is told; other pods want the device."""
    yield Action(begin, "aim", (CLAIM, 1, (("deafen", (chance.choice((8.0, 20.0)), "status")),)))
    yield from _with_known(begin + 0.1, 0)
    yield from _competitors(chance, begin + 1.0)


def _lost_leader(_world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """A leader ends after it has allocated, before anybody is told; the next one is asked for the device."""
    yield Action(begin, "hold_watches", (30.0, "resourceclaims"))
    yield from _with_known(begin + 0.2, 0)
    yield Action(begin + chance.uniform(0.5, 3.0), "lose_leader", (chance.uniform(1.0, 30.0),))
    yield from _competitors(chance, begin + 4.0)


def _changed_between_filter_and_bind(world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """While kube-scheduler thinks, what the answer of the filter was about goes away."""
    nodes = [f"node-{number}" for number in range(world.nodes)]
    devices = tuple(each for each in DEVICES if each.startswith(WHOLE))
    gone = [("remove_node", (node,)) for node in nodes]
    changes = chance.choice((gone, [("publish", (node, devices)) for node in nodes]))
    yield Action(begin, "aim", (FILTER, 1, (("pause", ("scheduler", chance.uniform(2.0, 4.5))), *changes)))
    yield from _with_known(begin + 0.2, 0)
    if changes is gone:
        yield from (Action(begin + 10.0, "add_node", (node,)) for node in nodes)


def _forgotten_hold(_world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """kube-scheduler ends after the filter, and no node takes the pod any more; others want the devices kept for it."""
    yield Action(begin, "aim", (FILTER, 1, (("pause", ("scheduler", 2.0)),)))
    yield from _with_known(begin + 0.2, 0)
    yield Action(begin + 1.0, "taint_all", ())
    yield Action(begin + 1.5, "kill", ("scheduler", False, 1.0))
    for number in range(8):
        yield Action(begin + chance.uniform(4.0, 8.0), "create_pod", (f"later-{number}", WHOLE, "", ""))


def _claims_of_a_rival(_world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """Another scheduler allocates claims for its pods that others use, too, before anybody is told."""
    yield Action(begin, "hold_watches", (chance.uniform(4.0, 8.0), "resourceclaims"))
    for number in range(3):
        name, claim = f"rival-{number}-knows", f"rival-known-{number}"
        yield Action(begin - 1.0, "create_claim", (claim, WHOLE))
        yield Action(begin + 0.1 + number, "place_rival", (name, claim))
        pod = (f"knows-{number}", WHOLE, claim, "")
        yield Action(begin + 1.2 + number + chance.random(), "create_pod", pod)
        # A rival that is refused leaves its pod, which nobody else would place.
        yield Action(begin + 15.0, "delete_pod", (name,))


def _failed_while_its_gang_waits(_world: Setting, chance: random.Random, begin: float) -> Iterator[Action]:
    """A member has its device, which is ready, and waits until kube-scheduler gets to the other; the device fails meanwhile."""
    name = "patient"
    yield Action(begin, "aim", (BIND, 1, (("pause", ("scheduler", 12.0)),)))
    yield Action(begin, "create_gang", (name, 2, ""))
    for member in range(2):
        yield Action(begin + 0.1, "create_member", (name, f"{name}-{member}", SLOW))
    yield Action(begin + chance.uniform(7.0, 9.0), "fail_device", ())


_STORIES: Final = (
    _unanswered_allocation,
    _lost_leader,
    _changed_between_filter_and_bind,
    _forgotten_hold,
    _claims_of_a_rival,
    _failed_while_its_gang_waits,
)


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
        (chance.uniform(0.05, 1.0), chance.uniform(1.0, 9.0), _LEASE_SECONDS + chance.uniform(0.0, 8.0))
    )


def _hold(chance: random.Random) -> tuple[float, str]:
    return chance.choice((0.3, 2.0, 6.0, 15.0)), chance.choice(_WATCHED)


def _trouble(chance: random.Random) -> tuple[Any, ...]:
    """What share of which requests for how long."""
    kinds = chance.choice(("resourceclaims", "resourceclaims", "pods", "leases", ""))
    verbs = chance.choice(("read", "write", "status", "watch", ""))
    outcomes = chance.choice(("refused", "slow", "lost", "unanswered", ""))
    return kinds, verbs, outcomes, chance.choice((0.2, 0.6, 1.0)), chance.uniform(1.0, 12.0)


_Given = Callable[[random.Random], tuple[Any, ...]]
_FAULTS: Final[dict[str, tuple[int, _Given]]] = {
    "kill": (3, lambda chance: (_victim(chance), chance.choice((False, True)), chance.uniform(0.1, 6.0))),
    "kill_at_step": (4, lambda chance: (chance.choice(_REPLICAS), chance.randrange(1, 400), chance.uniform(0.1, 6.0))),
    "stop": (2, lambda chance: (chance.choice(_REPLICAS),)),
    "pause": (2, lambda chance: (_victim(chance), _pause(chance))),
    "pause_at_step": (5, lambda chance: (chance.choice(_REPLICAS), chance.randrange(1, 400), _pause(chance))),
    "cut": (2, lambda chance: (chance.random(),)),
    "block": (3, lambda chance: (*_pair(chance), chance.choice((0.5, 4.0, 8.0, 20.0)))),
    "slow": (2, lambda chance: (*_pair(chance), chance.choice((0.05, 0.5, 2.0)), chance.uniform(2.0, 20.0))),
    "jump": (1, lambda chance: (chance.choice(_REPLICAS), chance.choice((-3600.0, -5.0, 5.0, 3600.0)))),
    "suspend": (2, lambda chance: (chance.choice(_REPLICAS), _pause(chance))),
    "restart_api": (1, lambda chance: (chance.uniform(0.1, 5.0),)),
    "compact": (3, lambda chance: (chance.choice((0.0, 1.0, 5.0)),)),
    "cut_watches": (2, lambda chance: ()),
    "hold_watches": (4, _hold),
    "deafen": (5, lambda chance: (chance.choice((2.0, 8.0, 20.0)),)),
    "trouble": (5, _trouble),
    "hand_over": (3, lambda chance: (chance.choice((4.0, 20.0)), chance.uniform(0.0, 4.0))),
}
"""Name -> how often beside the others, and its arguments."""
_AT_REQUESTS: Final[dict[str, _Given]] = {
    "pause": lambda chance: (IT, _pause(chance)),
    "suspend": lambda chance: (IT, _pause(chance)),
    "kill": lambda chance: (IT, chance.choice((False, True)), chance.uniform(0.1, 6.0)),
    "block": lambda chance: (
        *chance.choice(((IT, "api-server"), ("api-server", IT))),
        chance.choice((0.5, 4.0, 20.0)),
    ),
    "hold_watches": _hold,
    "deafen": lambda chance: (chance.choice((2.0, 8.0, 20.0)),),
    "trouble": _trouble,
    "touch": lambda chance: (),
    "attach": lambda chance: (),
}
_AT_CALLS: Final[dict[str, _Given]] = {
    "delete_called": lambda chance: (),
    "kill": lambda chance: (chance.choice(("scheduler", *_REPLICAS)), False, chance.uniform(0.1, 6.0)),
    "hold_watches": _hold,
    "deafen": lambda chance: (chance.choice((2.0, 8.0, 20.0)),),
    "trouble": _trouble,
    "fail_device": lambda chance: (),
    "taint_all": lambda chance: (),
    "publish": lambda chance: (f"node-{chance.randrange(3)}", tuple(chance.sample(DEVICES, chance.choice((3, 10))))),
}
