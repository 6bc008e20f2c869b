"""Searches for the fewest pods to move: sets of pods end and land in a trial, small sets first, until the goal is met.

If a pod that has to land fits nowhere after the end of a set, though nobody is placed yet, the set is extended by pods that make
room for it on one node.  If it fits and others take its place, the set is extended by any pod from where one of them could land.

So no smaller set that meets the goal is passed over: taking pods away never keeps another one from a node, and pods that ask for
the same may take each other's place, so that none is moved to make room for another of its kind.
"""

from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import cached_property, partial
from heapq import heappop, heappush
from itertools import combinations
from typing import Final, NamedTuple

from dra_extender.inspection.defrag.movable import MovingPods, forbidden_together, forbidding_budget
from dra_extender.inspection.defrag.report import StayingPods
from dra_extender.inspection.fewest_ends import irreducible
from dra_extender.inspection.pod_facts import PodFacts
from dra_extender.inspection.what_if.changes import PodKey
from dra_extender.inspection.what_if.report import OutcomeKind, ReasonCount
from dra_extender.inspection.what_if.trial import Trial, counted
from dra_extender.model.api_json import number_of
from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import Key, StoredKind

MOST_SETS: Final = 20_000
"""Sets of pods whose end is tried."""
SECONDS: Final = 30.0
"""Time after which no further set is tried."""
MOST_KEPT: Final = 200_000
"""Sets that are remembered for later."""
MOST_NODES: Final = 64
"""Nodes on which a plan is looked for before all small sets are tried."""
_MOST_ON_A_NODE: Final = 32

Verify = Callable[[tuple[PodKey, ...]], Awaitable[bool]]
_Places = frozenset[int]
"""A set of pods: their places among those that may be moved."""
_Rank = tuple[int, int, int, tuple[int, ...]]


class Required(NamedTuple):
    """What a set has to reach: these pods land, and so do those that would land without any move (`undisturbed`).

    `subject` is the pod that is to fit; None if a node is to be empty.  `drained` are the pods that move in any case.
    """

    landing: frozenset[PodKey]
    undisturbed: frozenset[PodKey]
    subject: PodKey | None = None
    drained: Sequence[PodFacts] = ()


class _Step(NamedTuple):
    """A set to be played; or, with a pod in `room_for`, to be extended by so many (`more`) that make room for the pod.

    Steps are sorted: few pods first, then the preferred ones.
    """

    size: int
    rank: _Rank
    places: _Places
    more: int = 0
    room_for: PodKey = ("", "")


class _Result(NamedTuple):
    """What became of a set: the pods that do not land as they should, and those that land though nobody asked for it (`helped`).

    `unfit` is a pod that fits nowhere, though nobody was placed yet.
    """

    waiting: Sequence[PodKey] = ()
    helped: Sequence[PodKey] = ()
    unfit: PodKey | None = None

    @property
    def met(self) -> bool:
        return not self.waiting and self.unfit is None


def _limit(sets: int, done: str) -> str:
    return f"{number_of(sets, 'set')} of pods {'was' if sets == 1 else 'were'} {done}, which is the limit"


class MoveSearch:
    """Searches in a trial to which the changes of the goal are applied.

    `begin_emptied` begins one in which all pods that may be moved have ended, too.  After `find`, `tried` is the number of tried
    sets, `bound` says which bound kept the answer from being certain, and `complete` whether no smaller set meets the goal.
    `forbidden`: by the budget that forbids to evict pods together, the first of such sets.
    """

    def __init__(
        self,
        trial: Trial,
        begin_emptied: Callable[[], Trial],
        moving: Sequence[MovingPods],
        required: Required,
        most_moves: int,
    ) -> None:
        self._trial = trial
        self._begin_emptied = begin_emptied
        self._moving = moving
        self._required = required
        self._most_moves = most_moves
        self._nodes: dict[PodKey, Sequence[str]] = {}
        self._by_node: dict[str, list[int]] = defaultdict(list)
        self._anywhere = [place for place, unit in enumerate(moving) if unit.nodes is None]
        for place, unit in enumerate(moving):
            for node in unit.nodes or ():
                self._by_node[node].append(place)
        self._steps: list[_Step] = []
        self._known: set[_Places] = set()
        self._end = trial.view.monotonic + SECONDS
        self.tried = 0
        self.bound = ""
        self.complete = True
        self.forbidden: dict[str, StayingPods] = {}

    async def find(self, verify: Verify) -> tuple[PodKey, ...] | None:
        """Return the smallest set that meets the goal, of equally small ones the preferred; else one that is not known to be.

        None if no set was found.  `verify` plays a set with `what-if` itself.
        """
        best: _Places | None = None
        self._add(frozenset())
        while self._steps:
            step = heappop(self._steps)
            if best is not None and step.size > self._size(best):
                break
            if step.places and self._is_bounded():
                self.complete = best is not None and step.size >= self._size(best)
                break
            if step.more:
                self._make_room(step)
                continue
            if not self._is_forbidden(step.places):
                result = await self._play(step.places)
                if not result.met:
                    self._add_larger(step.places, result)
                elif await verify(self._keys(step.places)):
                    best = step.places
                    break
            if not step.places:
                best = await self._on_one_node(verify)
        if best is None:
            return None
        self.bound = "" if self.complete else self.bound
        return self._keys(best)

    def unfit(self) -> tuple[PodKey, tuple[ReasonCount, ...]] | None:
        """Return the first pod that has to land and fits nowhere, though all pods that may be moved have ended, and why."""
        for key in sorted(self._required.landing):
            if not self._nodes_of(key):
                return key, counted(Counter(self._emptied.refusals(self._pod(self._emptied, key)).texts.values()))
        return None

    def _add_larger(self, places: _Places, result: _Result) -> None:
        """Note the larger sets that may meet the goal where this one does not."""
        if result.unfit is not None:
            self._add_room(places, 1, result.unfit)
            return
        short = {self._trial.exchange_key(self._pod(self._trial, key)) for key in result.waiting}
        near = {node for key in (*result.waiting, *result.helped) for node in self._nodes_of(key)}
        near.update(*(self._moving[place].nodes or self._by_node for place in places))
        for place in sorted({place for node in near for place in self._on(node)}):
            if short != {self._moving[place].exchange_key}:
                self._add(places | {place})

    def _add(self, places: _Places) -> None:
        if places in self._known:
            return
        if self._size(places) > self._most_moves:
            self.bound = self.bound or f"{number_of(self._most_moves, 'move')}, which is the limit"
        elif len(self._known) >= MOST_KEPT:
            self.bound, self.complete = _limit(MOST_KEPT, "to be tried"), False
        else:
            self._known.add(places)
            heappush(self._steps, _Step(self._size(places), self._rank(places), places))

    def _add_room(self, places: _Places, more: int, pod: PodKey) -> None:
        size = self._size(places) + more
        if size <= self._most_moves:
            heappush(self._steps, _Step(size, self._rank(places), places, more, pod))
        else:
            self.bound = self.bound or f"{number_of(self._most_moves, 'move')}, which is the limit"

    def _make_room(self, step: _Step) -> None:
        """Add the sets with so many more pods of one node after whose end the pod fits there."""
        pod = self._pod(self._trial, step.room_for)
        further = False
        for node in self._nodes_of(step.room_for):
            others = self._in_the_way(pod, node, step.places)
            further |= len(others) > step.more
            for more in combinations(others, step.more):
                if self._is_bounded():
                    self.complete = False
                    return
                smaller = (part for size in range(1, len(more) + 1) for part in combinations(more, size))
                if any(step.places.union(part) in self._known for part in smaller):
                    continue
                places = step.places.union(more)
                if self._fits(pod, node, places):
                    self._add(places)
        if further:
            self._add_room(step.places, step.more + 1, step.room_for)

    def _in_the_way(self, pod: Pod, node: str, places: _Places) -> Sequence[int]:
        """Return the pods, beside those of the set, whose end may let the pod on the node.

        Where only devices keep it away, those are pods that ask for devices.
        """
        with self._trial.taken_back():
            self._evict(places)
            is_open = node in self._trial.open_nodes(pod)
        exchange_key = self._trial.exchange_key(pod)
        return [
            place
            for place in self._on(node)
            if place not in places
            and self._moving[place].exchange_key != exchange_key
            and not (is_open and self._moving[place].plain)
        ]

    async def _on_one_node(self, verify: Verify) -> _Places | None:
        """Return the smallest of some sets that make room for the subject on one node: an answer before all sets are tried."""
        key = self._required.subject
        if key is None:
            return None
        candidates: list[_Places] = []

        def order(places: _Places) -> tuple[int, _Rank]:
            return self._size(places), self._rank(places)

        for node in sorted(self._nodes_of(key), key=lambda name: (len(self._by_node[name]), name))[:MOST_NODES]:
            on_node = list(self._on(node))[:_MOST_ON_A_NODE]
            fits = partial(self._fits, self._pod(self._trial, key), node)
            if self._is_bounded() or not fits(on_node):
                continue
            places = frozenset(irreducible(on_node, fits))
            if self._size(places) > self._most_moves or self._is_forbidden(places):
                continue
            if all(order(places) < order(earlier) for earlier in candidates) and (await self._play(places)).met:
                candidates.append(places)
        for places in reversed(candidates):
            if await verify(self._keys(places)):
                return places
        return None

    def _fits(self, pod: Pod, node: str, places: Iterable[int]) -> bool:
        """Return whether the pod fits on the node once the pods of a set have ended."""
        self.tried += 1
        with self._trial.taken_back():
            self._evict(places)
            # After its eviction the pod has another UID.
            return bool(self._trial.fitting_nodes(self._pod(self._trial, (pod.namespace, pod.name)), [node]))

    async def _play(self, places: _Places) -> _Result:
        """End the pods of a set, place what waits, and take it back."""
        self.tried += 1
        required, trial = self._required, self._trial
        moved = self._keys(places)
        subject = () if required.subject is None else (required.subject,)
        with trial.taken_back():
            self._evict(places)
            for key in dict.fromkeys((*subject, *moved, *sorted(required.landing))):
                if not trial.fitting_nodes(self._pod(trial, key)):
                    return _Result(unfit=key)
            outcomes = await trial.place_waiting()
        landed = {key for key, outcome in outcomes.items() if outcome.kind is OutcomeKind.LANDS}
        wanted = required.landing | required.undisturbed | set(moved)
        return _Result(sorted(wanted - landed), sorted(landed - wanted))

    def _evict(self, places: Iterable[int]) -> None:
        for key in self._keys(places):
            self._trial.evict(self._trial.copy.store.get(Key(StoredKind.POD, *key)))

    def _on(self, node: str) -> Iterator[int]:
        """Yield the pods whose end may free something on the node, the preferred first."""
        yield from sorted((*self._anywhere, *self._by_node.get(node, ())))

    def _nodes_of(self, key: PodKey) -> Sequence[str]:
        """Return the nodes on which a pod could land if all pods that may be moved had ended."""
        if key not in self._nodes:
            self._nodes[key] = self._emptied.fitting_nodes(self._pod(self._emptied, key))
        return self._nodes[key]

    @cached_property
    def _emptied(self) -> Trial:
        return self._begin_emptied()

    @staticmethod
    def _pod(trial: Trial, key: PodKey) -> Pod:
        pod = trial.view.pod(*key)
        if pod is None:
            raise LookupError(f"pod {'/'.join(key)} is not in the trial")
        return pod

    def _is_bounded(self) -> bool:
        """Return whether a limit is reached, and note which."""
        if self.tried >= MOST_SETS:
            self.bound = _limit(MOST_SETS, "tried")
        elif self._trial.view.monotonic > self._end:
            self.bound = f"sets of pods were tried for {SECONDS:g} s, which is the limit"
        else:
            return False
        return True

    def _is_forbidden(self, places: _Places) -> bool:
        """Return whether a PodDisruptionBudget forbids to evict the pods together with those that move in any case."""
        own = (facts for place in sorted(places) for facts in self._moving[place].pods)
        pods = [*self._required.drained, *own]
        reason = forbidding_budget(self._trial, pods)
        if reason:
            self.forbidden.setdefault(reason, forbidden_together(reason, pods))
        return bool(reason)

    def _keys(self, places: Iterable[int]) -> tuple[PodKey, ...]:
        return tuple(key for place in sorted(places) for key in self._moving[place].keys)

    def _size(self, places: _Places) -> int:
        return sum(len(self._moving[place].pods) for place in places)

    def _rank(self, places: _Places) -> _Rank:
        moving = [self._moving[place] for place in places]
        return (
            sum(unit.lost for unit in moving),
            max((unit.priority for unit in moving), default=0),
            len(moving),
            tuple(sorted(places)),
        )
