"""The scheduling loop asks, decides, parks and retries as kube-scheduler does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from dra_extender.nodefit.node_fit import aggregated
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.scheduler.loop import (
    NotAtRestError,
    Outcome,
    PodBound,
    PodWaiting,
    SchedulingFailed,
    SchedulingLoop,
)

from tests.support.simulator.things import Steady, claim, node, pod

pytestmark = pytest.mark.virtual_time
Answer = Any


class Scripted:
    """An extender that binds pods and answers other calls as the test says."""

    def __init__(self, cluster: MemoryCluster) -> None:
        self.cluster = cluster
        self.calls: list[tuple[str, Json]] = []
        self.filter: Callable[[Json], Answer] = lambda body: {"NodeNames": body["NodeNames"]}
        self.prioritize: Callable[[Json], Answer] = lambda _: []
        self.bind: Callable[[Json], Answer] | None = None

    async def post(self, verb: str, body: bytes) -> tuple[int, bytes]:
        request = msgspec.json.decode(body)
        self.calls.append((verb, request))
        if verb == "bind" and self.bind is None:
            await self.cluster.pods.bind(
                request["PodNamespace"], request["PodName"], request["PodUID"], request["Node"]
            )
            return 200, b'{"Error":""}'
        script = {"filter": self.filter, "prioritize": self.prioritize, "bind": self.bind}[verb]
        assert script is not None
        answer = script(request)
        return answer if isinstance(answer, tuple) else (200, msgspec.json.encode(answer))

    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]


class Bench:
    def __init__(self) -> None:
        self.cluster = MemoryCluster(clock=Steady())
        self.extender = Scripted(self.cluster)
        self.outcomes: list[Outcome] = []
        self.loop = SchedulingLoop(self.cluster, self.extender, observe=self.outcomes.append)

    def add(self, *things: Json) -> None:
        for thing in things:
            kind = StoredKind.POD if "containers" in thing.get("spec", {}) else StoredKind.NODE
            self.cluster.store.create(kind, thing)

    async def rest(self) -> list[Outcome]:
        self.outcomes.clear()
        await asyncio.wait_for(self.loop.run_until_idle(), 60)
        return list(self.outcomes)

    def pod(self, name: str) -> Json:
        return self.cluster.store.get(Key(StoredKind.POD, "default", name))

    def node_of(self, name: str) -> str | None:
        found: str | None = self.pod(name)["spec"].get("nodeName")
        return found


@pytest.fixture
def bench() -> Bench:
    return Bench()


def refuse(reason: str) -> Callable[[Json], Answer]:
    return lambda body: {"NodeNames": [], "FailedAndUnresolvableNodes": dict.fromkeys(body["NodeNames"], reason)}


@pytest.mark.parametrize(
    ("scores", "chosen"),
    [({"n1": 1, "n3": 7}, "n3"), ({"n1": 5, "n2": 5}, "n1"), ({}, "n1"), ({"other": 9, "n2": 1}, "n2")],
)
async def test_the_highest_score_wins_and_then_the_name(bench: Bench, scores: dict[str, int], chosen: str) -> None:
    bench.add(node("n3"), node("n1"), node("n2"), pod("p"))
    bench.extender.prioritize = lambda _: [{"Host": name, "Score": score} for name, score in scores.items()]
    await bench.rest()
    assert bench.node_of("p") == chosen


@pytest.mark.parametrize("answer", [(500, b""), (200, b"{"), [{"Host": "n2", "Score": 7.5}]])
async def test_a_failed_prioritize_is_no_opinion(bench: Bench, answer: Answer) -> None:
    bench.add(node("n1"), node("n2"), pod("p"))
    bench.extender.prioritize = lambda _: answer
    await bench.rest()
    assert bench.node_of("p") == "n1"


async def test_in_tree_rules_come_first_and_every_reason_is_counted(bench: Bench) -> None:
    bench.add(
        node("cordoned"),
        node("labelled", {"zone": "b"}),
        node("small", {"zone": "a"}, cpu="1", memory="1Gi"),
        node("narrow", {"zone": "a"}, cpu="4", memory="1Mi"),
        node("full", {"zone": "a"}, cpu="4", memory="1Gi", pods="0"),
        node("asked", {"zone": "a"}, cpu="4", memory="1Gi"),
    )
    bench.cluster.store.edit_unchecked(
        Key(StoredKind.NODE, "", "cordoned"), lambda thing: thing.update(spec={"unschedulable": True})
    )
    bench.add(pod("p", requests={"cpu": "2", "memory": "10Mi"}, nodeSelector={"zone": "a"}))
    bench.extender.filter = refuse('node(s): claim "gpu" is none')
    (outcome, _) = await bench.rest()
    assert isinstance(outcome, PodWaiting)
    assert bench.extender.calls[0][1]["NodeNames"] == ["asked"]
    assert outcome.message == (
        "0/6 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Too many pods, 1 node(s) didn't match Pod's node "
        'affinity/selector, 1 node(s) were unschedulable, 1 node(s): claim "gpu" is none.'
    )
    (condition,) = bench.pod("p")["status"]["conditions"]
    assert (condition["reason"], condition["message"]) == ("Unschedulable", outcome.message)


async def test_taints_and_every_short_resource_are_reported_as_kube_scheduler_does(bench: Bench) -> None:
    bench.add(node("tainted"), node("small", cpu="1", memory="1Mi"), node("bare"))
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    bench.cluster.store.edit_unchecked(
        Key(StoredKind.NODE, "", "tainted"), lambda thing: thing.update(spec={"taints": [taint]})
    )
    bench.add(pod("p", requests={"cpu": "2", "memory": "10Mi"}))
    bench.extender.filter = refuse("no")
    (outcome, _) = await bench.rest()
    assert isinstance(outcome, PodWaiting)
    assert outcome.message == (
        "0/3 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 no, 1 node(s) had untolerated taint(s)."
    )
    assert outcome.reasons["small"] == "Insufficient cpu, Insufficient memory"
    assert bench.extender.calls[0][1]["NodeNames"] == ["bare"], "what a manifest does not say limits no pod"


async def test_sidecars_take_room_beside_containers(bench: Bench) -> None:
    sidecar = {"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    bench.add(node("n1", cpu="3"))
    bench.add(pod("one", requests={"cpu": "1"}, initContainers=[sidecar]), pod("two", requests={"cpu": "2"}))
    await bench.rest()
    assert (bench.node_of("one"), bench.node_of("two")) == ("n1", None)


async def test_extended_resources_are_counted_where_nodes_list_them_and_left_to_the_extender_where_a_class_backs_them(
    bench: Bench,
) -> None:
    """As NodeResourcesFit does: a node without amounts has no extended resources, either."""
    amounts = {"example.com/gpu": "1", "example.com/nic": "1"}
    bench.cluster.store.create(
        StoredKind.CLASS, {"metadata": {"name": "c"}, "spec": {"extendedResourceName": "example.com/gpu"}}
    )
    bench.add(
        node("bare"),
        node("none", None, **{"example.com/nic": "1"}),
        node("listed", None, **amounts),
        node("full", None, **amounts),
    )
    bench.add(pod("before", requests={"example.com/gpu": "1"}, nodeName="full"))
    bench.add(pod("p", requests=amounts))
    bench.extender.filter = refuse("not here")
    (outcome, _) = await bench.rest()
    assert isinstance(outcome, PodWaiting)
    assert sorted(bench.extender.calls[0][1]["NodeNames"]) == ["listed", "none"]
    assert (outcome.reasons["bare"], outcome.reasons["full"]) == (
        "Insufficient example.com/nic",
        "Insufficient example.com/gpu",
    )


async def test_required_node_affinity_is_honoured(bench: Bench) -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    bench.add(node("n1", {"zone": "a"}), node("n2", {"zone": "b"}), pod("p", affinity={"nodeAffinity": rule}))
    await bench.rest()
    assert bench.node_of("p") == "n2"


async def test_pods_take_room_from_each_other(bench: Bench) -> None:
    bench.add(node("n1", cpu="3", memory="1Gi"))
    bench.add(*(pod(name, requests={"cpu": "2"}) for name in ("one", "two")))
    await bench.rest()
    assert (bench.node_of("one"), bench.node_of("two")) == ("n1", None)
    bench.cluster.store.delete(Key(StoredKind.POD, "default", "one"))
    await bench.rest()
    assert bench.node_of("two") == "n1"


@pytest.mark.parametrize(
    ("total", "reasons", "text"),
    [
        (0, [], "no nodes available to schedule pods"),
        (3, ["b"] * 2 + ["a"], "0/3 nodes are available: 1 a, 2 b."),
        (12, ["a"] * 10 + ["b"] * 2, "0/12 nodes are available: 10 a, 2 b."),
        (2, [], "0/2 nodes are available:"),
    ],
)
def test_reasons_are_aggregated_as_kube_scheduler_does(total: int, reasons: list[str], text: str) -> None:
    assert aggregated(total, reasons) == text


async def test_a_nominated_node_is_tried_first_and_alone(bench: Bench) -> None:
    bench.add(node("n1"), node("n2"), pod("p"))
    bench.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", "p"), lambda thing: thing["status"].update(nominatedNodeName="n2")
    )
    await bench.rest()
    assert bench.node_of("p") == "n2"
    assert bench.extender.verbs() == ["filter", "bind"]
    assert bench.extender.calls[0][1]["NodeNames"] == ["n2"]


async def test_a_nominated_node_that_is_refused_leads_to_a_normal_call(bench: Bench) -> None:
    bench.add(node("n1"), node("n2"), pod("p"))
    bench.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", "p"), lambda thing: thing["status"].update(nominatedNodeName="n2")
    )
    bench.extender.filter = lambda body: {"NodeNames": [name for name in body["NodeNames"] if name == "n1"]}
    await bench.rest()
    assert bench.node_of("p") == "n1"
    assert [call[1]["NodeNames"] for call in bench.extender.calls[:2]] == [["n2"], ["n1", "n2"]]


async def test_other_pods_are_left_alone(bench: Bench) -> None:
    bench.add(
        node("n1"), pod("other", schedulerName="default-scheduler"), pod("gated", schedulingGates=[{"name": "g"}])
    )
    assert await bench.rest() == []


async def test_higher_priority_goes_first_and_then_the_older_pod(bench: Bench) -> None:
    bench.add(node("n1"), pod("first"), pod("second"), pod("urgent", priority=10))
    outcomes = await bench.rest()
    assert [outcome.pod.name for outcome in outcomes] == ["urgent", "first", "second"]


WAKES: dict[str, Callable[[Bench], object]] = {
    "a claim": lambda bench: bench.cluster.store.create(StoredKind.CLAIM, claim("c")),
    "a class": lambda bench: bench.cluster.store.create(StoredKind.CLASS, {"metadata": {"name": "c"}, "spec": {}}),
    "a node": lambda bench: bench.add(node("n2")),
    "a running pod": lambda bench: bench.add(pod("other", nodeName="n1")),
    "the pod itself": lambda bench: bench.cluster.store.edit_unchecked(
        Key(StoredKind.POD, "default", "p"), lambda thing: thing["metadata"].update(labels={"a": "b"})
    ),
}


@pytest.mark.parametrize("wake", list(WAKES))
async def test_these_wake_a_parked_pod(bench: Bench, wake: str) -> None:
    bench.add(node("n1"), pod("p"))
    bench.extender.filter = refuse("no")
    await bench.rest()
    WAKES[wake](bench)
    assert await bench.rest()


async def test_a_slice_wakes_no_pod_but_the_service_can(bench: Bench) -> None:
    bench.add(node("n1"), pod("p"))
    bench.extender.filter = refuse("no")
    await bench.rest()
    spec = {"driver": "d", "pool": {"name": "p"}, "nodeName": "n1"}
    bench.cluster.store.create(StoredKind.SLICE, {"metadata": {"name": "s1"}, "spec": spec})
    assert await bench.rest() == []
    bench.cluster.store.create(StoredKind.SLICE, {"metadata": {"name": "s2"}, "spec": spec})
    waking = asyncio.create_task(bench.cluster.waker.wake())
    assert await bench.rest()
    await waking


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ({"Error": "caches are not synced"}, "caches are not synced"),
        ((503, b""), "filter: the extender answered with HTTP status 503"),
        ((200, b""), "filter: the extender's answer cannot be read"),
        ({"NodeNames": ["unknown"]}, 'extender claims a filtered node "unknown" which is not found'),
    ],
)
async def test_a_failed_filter_backs_off_and_is_repeated(bench: Bench, answer: Answer, text: str) -> None:
    bench.add(node("n1"), pod("p"))
    answers = [answer, answer, {"NodeNames": ["n1"]}]
    bench.extender.filter = lambda _: answers.pop(0)
    first, second, last = await bench.rest()
    assert isinstance(first, SchedulingFailed)
    assert text in first.message
    assert isinstance(second, SchedulingFailed)
    assert isinstance(last, PodBound)


async def test_no_answer_is_a_failure_and_not_the_end(bench: Bench) -> None:
    bench.add(node("n1"), pod("p"))

    def fail(_: Json) -> Answer:
        raise OSError("connection refused")

    bench.extender.filter = fail
    outcomes = await bench.rest()
    assert all(isinstance(outcome, SchedulingFailed) for outcome in outcomes)
    (condition,) = bench.pod("p")["status"]["conditions"]
    assert condition["reason"] == "SchedulerError"
    assert "connection refused" in condition["message"]


async def test_success_without_a_binding_is_found_out(bench: Bench) -> None:
    bench.add(node("n1"), pod("p"))
    bench.extender.bind = lambda _: {"Error": ""}
    outcome = (await bench.rest())[0]
    assert outcome == SchedulingFailed(
        Key(StoredKind.POD, "default", "p"), "bind reported success, but the pod is not assigned to n1"
    )


async def test_a_bind_that_takes_too_long_fails(bench: Bench) -> None:
    bench.add(node("n1"), pod("p"))
    slow = bench.extender.post

    async def post(verb: str, body: bytes) -> tuple[int, bytes]:
        if verb == "bind":
            await asyncio.Event().wait()
        return await slow(verb, body)

    bench.extender.post = post  # type: ignore[method-assign]
    outcome = (await bench.rest())[0]
    assert outcome == SchedulingFailed(Key(StoredKind.POD, "default", "p"), "bind: no answer within 1 s", slow=True)


async def test_changing_reasons_are_reported_as_a_loop(bench: Bench) -> None:
    bench.add(node("n1"), pod("p"))
    count = iter(range(1000))

    def vary(body: Json) -> Answer:
        return refuse(f"free: {next(count)}")(body)

    bench.extender.filter = vary
    with pytest.raises(NotAtRestError, match="did not come to rest within 50 rounds; still retried: Pod default/p"):
        await bench.rest()


@asynccontextmanager
async def watched(bench: Bench) -> AsyncIterator[None]:
    task = asyncio.create_task(bench.cluster.watch.keep_delivering())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_changes_are_delivered_before_the_next_pod_is_tried(bench: Bench) -> None:
    seen: list[str] = []

    class EventSink:
        def changed(self, data: bytes) -> None:
            thing = msgspec.json.decode(data)
            seen.append(f"{thing['metadata']['name']}@{thing['spec'].get('nodeName', '')}")

        def deleted(self, namespace: str, name: str, uid: str) -> None:
            seen.append(f"-{name}")

        def listing(self) -> None:
            pass

        def synced(self) -> None:
            pass

        def absent(self) -> None:
            raise AssertionError

    bench.cluster.watch.attach({"pods": EventSink()})
    bench.add(node("n1"), pod("one"), pod("two"))
    known: list[list[str]] = []

    def look(body: Json) -> Answer:
        known.append(list(seen))
        return {"NodeNames": body["NodeNames"]}

    bench.extender.filter = look
    async with watched(bench):
        await bench.rest()
    assert known == [["one@", "two@"], ["one@", "two@", "one@n1"]]
