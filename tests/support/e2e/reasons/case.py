"""A constructed reason for which a pod waits: what is expected of `why`, what ends the wait, and how the answer is compared."""

import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.why.report import Cause

from tests.controlplane.resources import PODS, RESOURCE_CLAIMS
from tests.support.e2e.command import run_here
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture

WAITING: Final = "waiting"
"""The pod that waits."""
WANTED: Final = "wanted"
"""Its claim, which the pod calls gpu."""
HOLDER: Final = "holder"
"""A pod that has what the waiting one needs."""

Step = Callable[[NamespaceFixture], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Reason:
    """`build` makes the pod WAITING wait; `end` does what `why` names as the next step, and the pod is bound.

    `reasons` are (code, nodes) of the scene's own nodes that do not fit, as `why` has them; the nodes of other scenes have no
    devices for the pod, or the same reason if it is one `everywhere`.  `tells` are texts somewhere in its answer, `next` is its
    next step (one of those between ` | `); empty, where it knows none and a person has to find one.  In these texts `{ns}`,
    `{driver}`, `{node}` and `{scheduler}` stand for the namespace, the driver, the node `a` and the scheduler.  `said` is in the
    message of the condition PodScheduled, if it has one; otherwise it is made of `reasons`.  `event` is in an Event of the service.
    A reason that `passes` by itself is asked about as soon as it is there.  `only_here` says why a cluster with the in-tree
    scheduler does not have the case; `said_in_tree` is in the message of the condition there.
    """

    name: str
    build: Step
    end: Step
    cause: Cause = Cause.DEVICES
    reasons: tuple[tuple[str, int], ...] = ()
    tells: tuple[str, ...] = ()
    next: str = ""
    said: str | None = None
    event: tuple[str, ...] = ()
    everywhere: bool = False
    passes: bool = False
    only_here: str = ""
    said_in_tree: str | None = "cannot allocate all claims"


def of(scene: NamespaceFixture, attribute: str) -> str:
    """CEL for an attribute of a device."""
    return scene.attribute(attribute)


def amount(scene: NamespaceFixture, capacity: str) -> str:
    """CEL for a capacity of a device."""
    return f'device.capacity["{scene.driver}"].{capacity}'


async def ask(scene: NamespaceFixture, *expressions: str, **fields: Any) -> None:
    """Creates the claim for one device (fields as `objects.request`) and the pod that waits for it."""
    await scene.claim(WANTED, *expressions, **fields)
    await scene.pod(WAITING, claim=WANTED)


async def ask_anew(scene: NamespaceFixture, *expressions: str, **fields: Any) -> None:
    """The same in the place of those that exist: a claim cannot be changed."""
    await forget(scene)
    await ask(scene, *expressions, **fields)


async def forget(scene: NamespaceFixture) -> None:
    """Deletes the pod that waits and its claim, and waits until they are gone."""
    api = scene.api
    await scene.delete_pod(WAITING)
    await api.wait_for(lambda: _gone(scene, PODS, WAITING), SECONDS, "the pod is gone")
    if not await _gone(scene, RESOURCE_CLAIMS, WANTED):
        await api.delete(RESOURCE_CLAIMS, WANTED, scene.name)
        await api.wait_for(lambda: _gone(scene, RESOURCE_CLAIMS, WANTED), SECONDS, "the claim is gone")


def pod_anew(**fields: Any) -> Step:
    """The step that creates the pod again with these fields of its spec, and with the same claim."""

    async def end(scene: NamespaceFixture) -> None:
        await scene.delete_pod(WAITING)
        await scene.api.wait_for(lambda: _gone(scene, PODS, WAITING), SECONDS, "the pod is gone")
        await scene.pod(WAITING, claim=WANTED, **fields)

    return end


async def _gone(scene: NamespaceFixture, resource: Any, name: str) -> bool:
    return all(each["metadata"]["name"] != name for each in await scene.api.list(resource, scene.name))


async def hold(scene: NamespaceFixture, name: str = HOLDER, *expressions: str, **fields: Any) -> str:
    """A bound pod with a claim of its own name; returns its node."""
    await scene.claim(name, *expressions, **fields)
    await scene.pod(name, claim=name)
    return await scene.wait_until_bound(name)


async def fill(scene: NamespaceFixture, name: str, cpu: str, suffix: str = "a") -> None:
    """A bound pod without devices that takes so much of the node of this suffix."""
    await scene.pod(name, cpu=cpu, nodeSelector={"kubernetes.io/hostname": f"{scene.name}-{suffix}"})
    await scene.wait_until_bound(name)


def ends(*pods: str) -> Step:
    async def end(scene: NamespaceFixture) -> None:
        for name in pods:
            await scene.delete_pod(name)

    return end


def asks_anew(*expressions: Callable[[NamespaceFixture], str], **fields: Any) -> Step:
    async def end(scene: NamespaceFixture) -> None:
        await ask_anew(scene, *(each(scene) for each in expressions), **fields)

    return end


Json = dict[str, Any]
OF_OTHER_NODES: Final = frozenset({Code.NO_DEVICES.name, Code.NO_MATCH.name})
"""Of the nodes of other scenes, whose devices are those of other drivers."""


async def ask_why(scene: NamespaceFixture, *options: str) -> Json:
    """The answer to `why` about the pod WAITING as JSON, with these further options; of the cluster unless they name a snapshot."""
    source = () if "--snapshot" in options else ("--kubeconfig", str(scene.world.cluster.admin_kubeconfig))
    status, out, err = await run_here("why", WAITING, "-n", scene.name, "-o", "json", *source, *options)
    assert (status, err) == (0, "")
    found: Json = msgspec.json.decode(out)
    return found


def expected_text(scene: NamespaceFixture, text: str) -> str:
    names = {"ns": scene.name, "driver": scene.driver, "node": f"{scene.name}-a", "scheduler": scene.scheduler}
    return re.sub(r"\{(\w+)\}", lambda found: names[found[1]], text)


def check_report(scene: NamespaceFixture, reason: Reason, report: Json, nodes: int) -> None:
    """The hand-written expectation holds for the answer; `nodes` are those of all scenes."""
    assert report["cause"] == reason.cause.value, report
    if reason.reasons:
        counted, expected = _counted(report), Counter(dict(reason.reasons))
        if reason.everywhere:
            expected = Counter(dict.fromkeys(expected, nodes))
        assert expected <= counted, report
        assert set(counted - expected) <= OF_OTHER_NODES, report
        assert counted.total() == nodes, report
    everything = str(report)
    for text in reason.tells:
        assert expected_text(scene, text) in everything, report
    steps = [each["text"] for each in report.get("next", ())]
    if reason.next:
        assert any(expected_text(scene, each) in steps for each in reason.next.split(" | ")), report


def _counted(report: Json) -> Counter[str]:
    """Count the nodes by the reason that holds now."""
    counted: Counter[str] = Counter()
    for branch in report.get("branches", ()):
        for each in branch.get("reasons", ()):
            counted[each["code"]] += each["nodes"]
    return counted


def texts_of(reason: Reason, report: Json) -> list[str]:
    """What the message of kube-scheduler has of the scene's own nodes where `why` says the truth about the service's refusals."""
    codes = dict(reason.reasons)
    return [
        _rejection(branch, each).summary if number is None else f"{number} {_rejection(branch, each).summary}"
        for branch in report.get("branches", ())
        for each in branch.get("reasons", ())
        if each["code"] in codes
        for number in [None if reason.everywhere or each["code"] in OF_OTHER_NODES else each["nodes"]]
    ]


def _rejection(branch: Json, reason: Json) -> Rejection:
    return Rejection(code=Code[reason["code"]], claim=branch.get("claim", ""), request=branch.get("request", ""))
