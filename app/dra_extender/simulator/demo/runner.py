"""Runs a story: one step after the other, with the scheduler at rest in between.

A step ends with a document that expects something of its pods at this point; a document that deletes an object, or changes one that
an earlier document has, is a step of its own.  All other documents of a step take effect together, so that the order of objects in
a file decides nothing: nothing is scheduled in between, and pods queue by creation time and name.  What runs already, a pod on its
node or a claim with its devices, is there from the beginning.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, NamedTuple

from dra_extender.scheduling.ports.cluster import ClusterError, NotFoundError, RequestRejectedError
from dra_extender.simulator.apiserver.cluster import MemoryCluster
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind, part
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.simulator.demo.document import Action, Document, Manifests, PodExpectation
from dra_extender.simulator.demo.results import (
    ApplyEffect,
    CheckedExpectation,
    PodState,
    StoryResult,
    StoryStep,
    state_of,
)
from dra_extender.simulator.scheduler.extender_client import ExtenderTransport
from dra_extender.simulator.scheduler.loop import SCHEDULER_NAME, NotAtRestError, SchedulingLoop
from dra_extender.simulator.virtual_time import VirtualClock, running_virtual_loop

_QUIET_SECONDS: Final = 45.0
"""Virtual seconds without a change after which a step has ended: more than reclaim's grace (30 s) and its interval (5 s)."""

ServiceFactory = Callable[[MemoryCluster], AbstractAsyncContextManager[ExtenderTransport]]
"""Starts the extender over a cluster (and the cluster's watch), yields its transport, and stops both at the end of the story."""


class Step(NamedTuple):
    """Documents that are reported together, in the order of the files, and those that take effect now, in their order."""

    reported: tuple[Document, ...]
    applied: tuple[Document, ...]


async def run_story(
    title: str,
    manifests: Manifests,
    factory: ServiceFactory,
    *,
    served: Served | None = None,
    scheduler_names: Sequence[str] = (SCHEDULER_NAME,),
    observe: Callable[[StoryStep], None] = lambda _: None,
) -> StoryResult:
    """Apply the documents of each step and let the scheduler come to rest after it.

    Args:
        title: What the result calls the story.
        manifests: The documents; the event loop is a VirtualClockLoop.
        factory: Starts the service; it is up before the first document.
        served: Which fields the API server keeps; everything that 1.37 can keep by default.
        scheduler_names: Whose pods are scheduled.
        observe: Called with what came of each document as soon as its step is over.

    Returns:
        What happened.  A document that the cluster refuses is part of the story, not an error.
    """
    cluster = MemoryCluster(served=served, clock=VirtualClock(running_virtual_loop()))
    async with factory(cluster) as transport:
        loop = SchedulingLoop(cluster, transport, scheduler_names=scheduler_names, quiet_seconds=_QUIET_SECONDS)
        story = _Story(cluster, loop)
        reported = []
        for step in steps_of(manifests.documents):
            for story_step in await story.play(step):
                observe(story_step)
                reported.append(story_step)
        return StoryResult(
            title=title,
            steps=tuple(reported),
            pods=tuple(story.states().values()),
            at_end=tuple(story.check_end(manifests)),
            warnings=tuple(str(problem) for problem in manifests.warnings),
        )


class _Applied(NamedTuple):
    """What applying a document did, and why the cluster refused it, if it did."""

    effect: ApplyEffect
    refusal: str = ""


class _Story:
    """One cluster while its documents are applied."""

    def __init__(self, cluster: MemoryCluster, loop: SchedulingLoop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._known: dict[str, PodState] = {}
        self._reported: set[str] = set()
        self._applied: dict[int, _Applied] = {}
        self._made: dict[str, frozenset[Key]] = {}
        self._refused: set[Key] = set()

    async def play(self, step: Step) -> list[StoryStep]:
        """Apply the documents of a step together, and report what came of each that is reported now."""
        for document in step.applied:
            self._applied[id(document)] = self._guarded(document)
        problems = []
        try:
            await self._loop.run_until_idle()
        except NotAtRestError as problem:
            problems.append(str(problem))
        unresolved = set(self._loop.controller.problems)
        problems.extend(sorted(unresolved - self._reported))
        self._reported = unresolved
        problems.extend(self._cluster.watch.unreadable)
        self._cluster.watch.unreadable.clear()
        before, self._known = self._known, self.states()
        changed = {uid: state for uid, state in self._known.items() if not state.same_as(before.get(uid))}
        return [
            self._report(document, changed, () if document is not step.reported[-1] else tuple(problems), step)
            for document in step.reported
        ]

    def _guarded(self, document: Document) -> _Applied:
        try:
            if document.workload:
                effects = [self._apply_workload(document)]
            else:
                effects = [self._apply(document, key) for key in document.keys]
        except ClusterError as problem:
            self._refused.update(document.keys)
            return _Applied(ApplyEffect.REFUSED, str(problem))
        self._refused.difference_update(document.keys)
        return _Applied(effects[0])

    def _report(
        self, document: Document, changed: dict[str, PodState], problems: tuple[str, ...], step: Step
    ) -> StoryStep:
        """Return what came of a document; changes of pods that are no document of the step are reported with the last one."""
        own = self._uids(document.keys)
        other_uids = self._uids([key for other_document in step.reported for key in other_document.keys])
        last = document is step.reported[-1]
        effect, refusal = self._applied[id(document)]
        if effect is ApplyEffect.DELETED and any(self._cluster.store.find(key) is not None for key in document.keys):
            effect = ApplyEffect.TERMINATING
        return StoryStep(
            file=document.file,
            line=document.position.line,
            subject=document.subject,
            effect=effect,
            narration=document.narration,
            refusal=refusal,
            pods=tuple(state for uid, state in changed.items() if uid in own or (last and uid not in other_uids)),
            problems=problems,
            checked=self._check(document, document.expect, at_end=False),
        )

    def _uids(self, keys: Sequence[Key]) -> frozenset[str]:
        stored = (self._cluster.store.find(key) for key in keys if key.kind is StoredKind.POD)
        return frozenset(pod["metadata"]["uid"] for pod in stored if pod is not None)

    def states(self) -> dict[str, PodState]:
        """Return every pod by UID, in the order of creation."""
        return {
            pod["metadata"]["uid"]: state_of(self._cluster, pod, self._loop)
            for pod in self._cluster.store.all(StoredKind.POD)
        }

    def check_end(self, manifests: Manifests) -> list[CheckedExpectation]:
        """Return expectations about the end of the story: the last one that each pod was given."""
        last = {document.key: document for document in manifests.documents if document.expect_at_end is not None}
        checks = [self._check(document, document.expect_at_end, at_end=True) for document in last.values()]
        return [check for check in checks if check is not None]

    def _check(
        self, document: Document, expectation: PodExpectation | None, *, at_end: bool
    ) -> CheckedExpectation | None:
        """Return whether the expectation holds, for every copy; the first for which it does not is named."""
        if expectation is None:
            return None
        name = document.pods
        for key in document.keys:
            failure = self._failure(key, expectation)
            if failure is not None:
                which = f"{key.name}: " if document.copies is not None else ""
                return CheckedExpectation(
                    name, expectation.text, which + failure, at_end, refused=not self._refused.isdisjoint(document.keys)
                )
        return CheckedExpectation(name, expectation.text, None, at_end)

    def _failure(self, key: Key, expectation: PodExpectation) -> str | None:
        pod = self._cluster.store.find(key)
        if pod is None:
            return "the pod does not exist"
        state = self._known[pod["metadata"]["uid"]]
        return expectation.failure(state.node, state.why)

    def _apply(self, document: Document, key: Key) -> ApplyEffect:
        """Do for this object what the document says, as `kubectl apply` or `kubectl delete` would."""
        store = self._cluster.store
        if document.action is Action.DELETE:
            store.delete(key)
            return ApplyEffect.DELETED
        item = {**document.item, "metadata": {**document.item["metadata"], "name": key.name}}
        for field in ("resourceVersion", "managedFields", "creationTimestamp", "generation"):
            item["metadata"].pop(field, None)
        old = store.find(key)
        if old is None:
            stored, effect = store.create(key.kind, item), ApplyEffect.CREATED
        else:
            _carry_over(old, item)
            stored = store.update(key.kind, item)
            changed = stored["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"]
            effect = ApplyEffect.UPDATED if changed else ApplyEffect.UNCHANGED
        if self._apply_status(document, stored) and effect is ApplyEffect.UNCHANGED:
            effect = ApplyEffect.UPDATED
        return effect

    def _apply_workload(self, document: Document) -> ApplyEffect:
        """As its controller: pods that it has not any more are deleted, and those of another template replaced."""
        store, name = self._cluster.store, document.workload
        before = {key for key in self._made.get(name, ()) if store.find(key) is not None}
        keys = frozenset(() if document.action is Action.DELETE else document.keys)
        if document.action is Action.DELETE and name not in self._made:
            raise NotFoundError(f"{name} not found")
        for key in sorted(before - keys):
            store.delete(key)
        if document.action is Action.DELETE:
            del self._made[name]
            return ApplyEffect.DELETED
        effects = {self._replace(document, key) for key in document.keys}
        existed, self._made[name] = name in self._made, keys
        if not existed:
            return ApplyEffect.CREATED
        same = effects <= {ApplyEffect.UNCHANGED} and before == keys
        return ApplyEffect.UNCHANGED if same else ApplyEffect.UPDATED

    def _replace(self, document: Document, key: Key) -> ApplyEffect:
        try:
            return self._apply(document, key)
        except RequestRejectedError:
            self._cluster.store.delete(key)
            self._apply(document, key)
            return ApplyEffect.UPDATED

    def _apply_status(self, document: Document, stored: Json) -> bool:
        """Write the document's status as the component that owns it would; return whether it changed anything."""
        document_status = part(document.item, "status")
        if not document.key.kind.has_status or not document_status:
            return False
        merged = {**part(stored, "status"), **document_status}
        written = self._cluster.store.update_status(document.key.kind, {**stored, "status": merged})
        return bool(written["metadata"]["resourceVersion"] != stored["metadata"]["resourceVersion"])


def _carry_over(old: Json, item: Json) -> None:
    """Keep what other writers set and the document does not mention, as a server-side apply does."""
    before, metadata = old["metadata"], item["metadata"]
    if "annotations" in before:
        metadata["annotations"] = {**before["annotations"], **part(metadata, "annotations")}
    for field in ("finalizers", "ownerReferences"):
        if field in before:
            metadata.setdefault(field, before[field])
    if old["kind"] == StoredKind.POD.singular and part(old, "spec").get("nodeName"):
        item["spec"] = {"nodeName": old["spec"]["nodeName"], **item["spec"]}


_ORDER: Final = (
    StoredKind.NODE,
    StoredKind.CLASS,
    StoredKind.TAINT_RULE,
    StoredKind.SLICE,
    StoredKind.TEMPLATE,
    StoredKind.POD_GROUP,
    StoredKind.CLAIM,
    StoredKind.POD,
)
_DIGITS: Final = re.compile(r"([0-9]{1,18})")
_LAST: Final = "~"
"""After every time stamp."""


def steps_of(documents: Sequence[Document]) -> list[Step]:
    """Return the steps of a story: one ends with a document that expects something; a change or deletion is a step of its own."""
    early = _running_before(documents)
    reported: list[list[Document]] = [[]]
    earlier_keys: set[Key] = set()
    for document in documents:
        changes = document.action is Action.DELETE or not earlier_keys.isdisjoint(document.keys)
        if changes and reported[-1]:
            reported.append([])
        reported[-1].append(document)
        if changes or document.expect is not None:
            reported.append([])
        earlier_keys.update(document.keys)
    steps: list[Step] = []
    for group in filter(None, reported):
        first = [] if steps else list(early.values())
        applied = [*first, *(document for document in group if id(document) not in early)]
        steps.append(Step(tuple(group), tuple(sorted(applied, key=_place))))
    return steps


def _running_before(documents: Sequence[Document]) -> dict[int, Document]:
    """Return the documents, by identity, that show what runs at the beginning: no earlier document is about the same object."""
    running: dict[int, Document] = {}
    earlier_keys: set[Key] = set()
    for document in documents:
        if document.runs_already and earlier_keys.isdisjoint(document.keys):
            running[id(document)] = document
        earlier_keys.update(document.keys)
    return running


def _place(document: Document) -> tuple[Any, ...]:
    """Order what pods refer to before the pods that wait, and these by age, then by name."""
    kind = document.key.kind
    # The claim controller removes what is reserved for pods that it does not know.
    rank = _ORDER.index(StoredKind.POD_GROUP if kind is StoredKind.POD and document.runs_already else kind)
    created = part(document.item, "metadata").get("creationTimestamp") or _LAST
    return rank, str(created) if kind is StoredKind.POD else "", document.key.namespace, _natural(document.key.name)


def _natural(name: str) -> tuple[Any, ...]:
    """`p-2` comes before `p-10`."""
    return tuple((int(text), "") if text.isdecimal() else (-1, text) for text in _DIGITS.split(name) if text)
