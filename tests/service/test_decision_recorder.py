"""Every decision about a pod that needs devices is noted, and the answers are those of the verbs."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from dra_extender.model.lazy_node_names import NodeNames
from dra_extender.model.metadata import Moment
from dra_extender.model.pod import RequestPod
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.filter_response import FilterResponse
from dra_extender.scheduling.recent_decisions import Decision, Outcome, RecentDecisions
from dra_extender.service.decision_recorder import DecisionRecorder

POD = RequestPod(b'{"metadata": {"namespace": "ml", "name": "train", "uid": "u1"}}')
PLAIN = RequestPod(b'{"metadata": {"namespace": "ml", "name": "plain", "uid": "u2"}}')


class Scripted:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.answer: FilterResponse | None = None
        self.kept: Mapping[str, Sequence[str]] = {}
        self.refusal: RetryableError | None = None

    async def filter(self, pod: RequestPod, nodes: Sequence[str]) -> FilterResponse:
        self._refuse()
        return self.answer or FilterResponse(nodes)

    async def prioritize(self, pod: RequestPod, nodes: Sequence[str]) -> Sequence[tuple[str, int]]:
        return [(node, 0) for node in nodes]

    async def bind(self, namespace: str, name: str, uid: str, node: str, disconnected: asyncio.Event, /) -> None:
        self._refuse()

    async def preempt(self, pod: RequestPod, victims: Mapping[str, Sequence[str]]) -> Mapping[str, Sequence[str]]:
        self._refuse()
        return self.kept

    def _refuse(self) -> None:
        if self.refusal is not None:
            raise self.refusal


@pytest.fixture
def verbs() -> Scripted:
    return Scripted()


@pytest.fixture
def recent() -> RecentDecisions:
    return RecentDecisions(lambda: 7.0)


@pytest.fixture
def recorder(verbs: Scripted, recent: RecentDecisions) -> DecisionRecorder:
    return DecisionRecorder(verbs, recent, lambda uid: uid != "u2")


def decisions(recent: RecentDecisions) -> list[Decision]:
    return list(recent.report(leads=True, replica="", watches={}, notes={}).decisions)


def decision(verb: str, outcome: Outcome, node: str = "", nodes: int = 0, reason: str = "") -> Decision:
    return Decision(
        verb=verb,
        pod="ml/train",
        outcome=outcome,
        first=Moment(7),
        last=Moment(7),
        node=node,
        nodes=nodes,
        reason=reason,
    )


async def ask(recorder: DecisionRecorder, verb: str, pod: RequestPod) -> None:
    match verb:
        case "filter":
            await recorder.filter(pod, ["n1"])
        case "bind":
            await recorder.bind("ml", pod.name, pod.uid, "n1", asyncio.Event())
        case _:
            await recorder.preempt(pod, {"n1": ["v"]})


async def test_nodes_that_are_offered_are_noted(
    recorder: DecisionRecorder, verbs: Scripted, recent: RecentDecisions
) -> None:
    verbs.answer = FilterResponse(("n2", "n1"))
    assert await recorder.filter(POD, ["n1", "n2", "n3"]) is verbs.answer
    assert decisions(recent) == [decision("filter", Outcome.FITS, "n2", 2)]


async def test_rejection_is_noted_with_its_different_reasons(
    recorder: DecisionRecorder, verbs: Scripted, recent: RecentDecisions
) -> None:
    texts = ["a is short", "b is short", "a is short", "c is short", "d is short"]
    verbs.answer = FilterResponse((), {f"n{index}": f"node(s): {text}" for index, text in enumerate(texts)})
    await recorder.filter(POD, [f"n{index}" for index in range(5)])
    assert decisions(recent) == [
        decision("filter", Outcome.REJECTED, nodes=5, reason="a is short; b is short; c is short")
    ]


async def test_names_of_nodes_for_a_pod_without_devices_are_not_even_decoded(
    recorder: DecisionRecorder, recent: RecentDecisions
) -> None:
    nodes = NodeNames(b'["n1", this is no JSON')
    assert (await recorder.filter(POD, nodes)).fitting is nodes
    assert decisions(recent) == []


@pytest.mark.parametrize("verb", ["filter", "bind", "preempt"])
async def test_error_is_noted_and_raised(
    recorder: DecisionRecorder, verbs: Scripted, recent: RecentDecisions, verb: str
) -> None:
    verbs.refusal = RetryableError("the search goes on")
    for pod in (POD, PLAIN):
        with pytest.raises(RetryableError, match="the search goes on"):
            await ask(recorder, verb, pod)
    node = "n1" if verb == "bind" else ""
    assert decisions(recent) == [decision(verb, Outcome.RETRY, node, reason="the search goes on")]


async def test_bind_and_preempt_are_noted(recorder: DecisionRecorder, verbs: Scripted, recent: RecentDecisions) -> None:
    await recorder.bind("ml", "train", "u1", "n1", asyncio.Event())
    verbs.kept = {"n3": ["v"]}
    assert await recorder.preempt(POD, {"n2": ["v"], "n3": ["v"]}) is verbs.kept
    verbs.kept = {}
    await recorder.preempt(POD, {"n2": ["v"], "n3": ["v"]})
    await recorder.bind("ml", "plain", "u2", "n1", asyncio.Event())
    found = decisions(recent)
    assert found[1:] == [decision("preempt", Outcome.FITS, "n3", 1), decision("bind", Outcome.BOUND, "n1")]
    assert (found[0].outcome, found[0].nodes, "frees no devices" in found[0].reason) == (Outcome.REJECTED, 2, True)


async def test_priorities_are_no_decision(recorder: DecisionRecorder, recent: RecentDecisions) -> None:
    assert await recorder.prioritize(POD, ["n1"]) == [("n1", 0)]
    assert decisions(recent) == []
