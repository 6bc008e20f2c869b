"""Whatever calls to the API server fail, before or after they act, and whatever else happens: nothing is given twice, and at
rest all is as it should be."""

import asyncio
from typing import Any, Final

from dra_extender.scheduling.ports.cluster import ConflictError, RequestRejectedError, ServerUnavailableError
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.reclaim.test_reclaim_property import PODS, Play, Step, steps
from tests.support.examples import examples
from tests.support.scheduling.seam import Seam

WRITES: Final = ("update", "update_status")
FAULTS: Final = {
    "conflict": ConflictError("the object has been modified"),
    "denied": RequestRejectedError("admission webhook denied the request"),
    "silent": ServerUnavailableError("connection reset"),
}
before = st.tuples(st.just("before"), st.sampled_from([*WRITES, "bind"]), st.sampled_from(sorted(FAULTS)))
unread = st.tuples(st.just("before"), st.just("read"), st.just("silent"))
after = st.tuples(st.just("after"), st.sampled_from([*WRITES, "bind"]), st.just("silent"))
faults = st.tuples(st.just("fault"), st.one_of(before, unread, after))


class FaultyPlay(Play):
    """A play in which calls fail as they are told to, until all is mended for the rest."""

    def __init__(self) -> None:
        super().__init__()
        claims: Any = Seam(self.world.cluster.claims)
        pods: Any = Seam(self.world.cluster.pods)
        self._claims, self._pods = claims, pods
        self.world.claims, self.world.pods = claims, pods
        self.world.start()

    async def step(self, kind: str, *arguments: Any) -> None:
        if kind != "fault":
            await super().step(kind, *arguments)
            return
        when, method, fault = arguments[0]
        for port in (
            (self._pods,) if method == "bind" else (self._claims, self._pods) if method == "read" else (self._claims,)
        ):
            getattr(port, when)(method, FAULTS[fault])

    def given(self) -> list[str]:
        """The devices of all claims."""
        return [device for number in range(PODS) for device in self.world.devices(f"c{number}")]

    async def rest(self) -> None:
        self._claims.mend()
        self._pods.mend()
        await super().rest()


@examples(30)
@given(st.lists(st.one_of(steps, faults, faults), min_size=5, max_size=40))
def test_no_fault_gives_anything_twice_or_leaves_anything_over(story: list[Step]) -> None:
    async def play() -> list[str]:
        stage = FaultyPlay()
        for each in story:
            await stage.step(*each)
            assert len(set(stage.given())) == len(stage.given())
        await stage.rest()
        return stage.findings()

    assert asyncio.run(play()) == []
