"""However a process ends, and whoever else is at work: one claim for each template entry of a PodGroup, and all know it."""

import asyncio
import itertools
import random
from typing import Any

from dra_extender.model.templated_claim import ENTRY_ANNOTATION
from dra_extender.scheduling.podgroup_claims.controller import PUBLISH_DELAY_SECONDS
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import create_claim
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.scheduling.grouped import GROUP
from tests.support.scheduling.making_groups import GPU, GRACE, NET, OWN, Boundaries, ClaimMakingExtender, CrashError

PODS = ("a", "b", "mixed")
# Three creates, the group's record, and what three pods are told.
WRITES = 7
CRASHES = st.lists(st.tuples(st.integers(1, WRITES), st.booleans()), max_size=4)
ENTRY = {"name": "gpu", "resourceClaimTemplateName": "template"}


def a_world() -> ClaimMakingExtender:
    world = ClaimMakingExtender()
    world.group(GPU, NET)
    world.member("a", GPU, NET)
    world.member("b", GPU)
    world.member("mixed", NET, OWN)
    return world


async def end(world: ClaimMakingExtender, boundaries: Boundaries) -> bool:
    """A process works until it dies or until all is done; whether it died."""
    world.restart(boundaries)
    try:
        await world.work()
    except CrashError:
        return True
    return False


async def crash_and_finish(crashes: list[tuple[int, bool]]) -> None:
    world = a_world()
    for fatal, after in crashes:
        await end(world, Boundaries(fatal, after=after))
    assert not await end(world, Boundaries())
    (gpu,), (net,), (own,) = world.made("gpu"), world.made("net"), world.made("own", "mixed")
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == {"gpu": gpu, "net": net}
    assert [world.recorded(StoredKind.POD, name) for name in PODS] == [
        {"gpu": gpu, "net": net},
        {"gpu": gpu},
        {"net": net, "own": own},
    ]
    assert world.extender.group_claims.notes() == {}


@examples(15)
@given(crashes=CRASHES)
def test_after_any_crashes_there_is_one_claim_for_each_entry_and_it_is_recorded(
    crashes: list[tuple[int, bool]],
) -> None:
    asyncio.run(crash_and_finish(crashes))


async def test_a_crash_at_each_single_write_leaves_nothing_behind() -> None:
    for fatal, after in itertools.product(range(1, WRITES + 1), (False, True)):
        await crash_and_finish([(fatal, after)])


class Manager:
    """kube-controller-manager with its gate on, whose caches are behind by `lag`, and whose records by `delay` seconds.

    Of several claims for an entry it takes any, and its records replace others, as upstream's do.
    """

    def __init__(self, world: ClaimMakingExtender, start: float, lag: float, delay: float, seed: int) -> None:
        self._world = world
        self._start = world.clock.seconds + start
        self._lag, self._delay = lag, delay
        self._random = random.Random(seed)
        self._history: list[tuple[float, list[str], dict[Key, str]]] = []
        self._own: list[str] = []
        self._found: float | None = None

    def work(self) -> None:
        world, now = self._world, self._world.clock.seconds
        keys = [Key(StoredKind.POD_GROUP, "default", GROUP)]
        keys += [
            Key(StoredKind.POD, "default", pod["metadata"]["name"]) for pod in world.cluster.store.all(StoredKind.POD)
        ]
        told = {key: world.recorded(key.kind, key.name).get("gpu", "") for key in keys}
        self._history.append((now, world.made("gpu"), told))
        if now < self._start:
            return
        _, claims, records = next((each for each in reversed(self._history) if each[0] <= now - self._lag), (0, [], {}))
        known = [*claims, *(each for each in self._own if each not in claims and each in world.made("gpu"))]
        for key in keys:
            if records.get(key) not in known:
                self._serve(key, known, now)

    def _serve(self, key: Key, known: list[str], now: float) -> None:
        if not known and key.kind is StoredKind.POD_GROUP:
            group = self._world.cluster.store.get(key)
            made: str = create_claim(
                self._world.cluster.store,
                StoredKind.POD_GROUP,
                group,
                ENTRY,
            )
            self._own.append(made)
            known.append(made)
        if known:
            self._found = now if self._found is None else self._found
            if now >= self._found + self._delay:
                self._record(key, self._random.choice(known))

    def _record(self, key: Key, claim: str) -> None:
        def change(thing: Json) -> None:
            thing.setdefault("status", {})["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]

        self._world.cluster.store.edit_unchecked(key, change)


class Told:
    """Stands in front of ports and notes the claims of which our process tells."""

    def __init__(self) -> None:
        self.claims: set[str] = set()

    def before(self, port: Any) -> Any:
        """The port, noted."""
        original = port.record_claims

        async def record_claims(*arguments: Any) -> None:
            await original(*arguments)
            self.claims.update(arguments[-1].values())

        port.record_claims = record_claims
        return port


async def race(start: float, lag: float, delay: float, seed: int) -> None:
    world = ClaimMakingExtender()
    told = Told()
    told.before(world.cluster.pods)
    told.before(world.cluster.pod_groups)
    world.group(GPU)
    for name in ("a", "b"):
        world.member(name, GPU)
    manager = Manager(world, start, lag, delay, seed)
    await world.work(seconds=18.0, step=0.25, meanwhile=manager.work)
    world.member("late", GPU)
    await world.work(seconds=5.0, step=0.25, meanwhile=manager.work)
    (claim,) = world.made("gpu")
    known = {"gpu": claim}
    assert world.recorded(StoredKind.POD_GROUP, GROUP) == known
    assert [world.recorded(StoredKind.POD, name) for name in ("a", "b", "late")] == [known] * 3
    assert told.claims <= {claim}
    ours = world.claim(claim)["metadata"].get("generateName") is None
    assert ours or "another controller" in world.extender.group_claims.notes()["group-claims"]
    assert world.claim(claim)["metadata"]["annotations"][ENTRY_ANNOTATION] == "gpu"


@examples(40)
@given(
    start=st.one_of(st.integers(0, 48), st.integers(int(GRACE * 4), int(GRACE * 4) + 6)).map(
        lambda quarters: quarters / 4
    ),
    lag=st.integers(0, int(PUBLISH_DELAY_SECONDS * 4) - 1).map(lambda quarters: quarters / 4),
    delay=st.integers(0, 8).map(lambda quarters: quarters / 4),
    seed=st.integers(0, 1000),
)
def test_a_race_with_kube_controller_manager_ends_with_one_claim_that_all_know(
    start: float, lag: float, delay: float, seed: int
) -> None:
    """As long as its caches are behind by less than the time for which nobody is told of a new claim."""
    asyncio.run(race(start, lag, delay, seed))
