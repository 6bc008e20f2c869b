"""Creates the claims of PodGroups where kube-controller-manager does not (its gate DRAWorkloadResourceClaims is off).

The controller is off by default and never works together with another one.  It waits for a grace before it creates a claim, because
another controller would create it in that time; it publishes a claim a moment after its creation; and it stops at the first
evidence of another controller.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from dra_extender.ledger.events import PodGroupChanged, Subscription
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.pod_group import PodGroup
from dra_extender.runtime.supervision import BackgroundTask, StoppableWork, Supervisor
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.podgroup_claims.competing_controller import CompetingController, unrecorded
from dra_extender.scheduling.podgroup_claims.plan import (
    PublishClaims,
    ReconcilePlan,
    is_kept_by_protection,
    plan_reconcile,
)
from dra_extender.scheduling.podgroup_claims.writer import PodGroupClaimWriter
from dra_extender.scheduling.ports.cluster import (
    Cluster,
    ClusterError,
    ConflictError,
    NotFoundError,
)
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

PUBLISH_DELAY_SECONDS: Final = 1.0
"""The age of a claim when it is published: a claim that another controller creates for the same entry shows within that time."""
_TICK_SECONDS: Final = 0.25
_RETRY_SECONDS: Final = {"done": 1.0, "changed": 0.0, "failed": 5.0}
_SWEEP_SECONDS: Final = 60.0
_TURN_SECONDS: Final = 0.002
_PARALLEL_WRITES: Final = 16

_LOG = structlog.get_logger(__name__)
Key = tuple[str, str]
StepKey = tuple[str, ...]
"""A write that a PodGroup needs: its name as a label of the metric, and what distinguishes it from others of that name."""
_SUSPENDED: Final[StepKey] = ("suspended",)


@dataclass(frozen=True, slots=True)
class _Step:
    """A write that is due when the group has needed it for `delay` seconds."""

    key: StepKey
    delay: float
    write: Callable[[], Awaitable[object]]


@dataclass(slots=True)
class _GroupWork:
    """What a PodGroup needs: when each step is due, the first of those that can be done now (monotonic), and why steps failed."""

    due: dict[StepKey, float] = field(default_factory=dict)
    next: float = math.inf
    problems: dict[StepKey, str] = field(default_factory=dict)

    def note_problem(self, key: Key, step: StepKey, problem: str) -> None:
        """Keep why a step of this PodGroup failed; empty if it did not."""
        if problem and self.problems.get(step) != problem:
            _LOG.warning("a PodGroup lacks something", pod_group="/".join(key), problem=problem)
        self.problems[step] = problem


@dataclass(eq=False)
class PodGroupClaimController:
    """Creates, records and publishes the claims of PodGroups, and removes the finalizer of deleted PodGroups without active pods.

    Every decision follows from the stored objects; the controller keeps only the times from which a group has needed a write.
    """

    ledger: Ledger
    cluster: Cluster
    claim_writer: ClaimWriter
    metrics: Metrics
    options: Options
    supervisor: Supervisor

    def __post_init__(self) -> None:
        self._groups = self.cluster.pod_groups
        self._clock = self.cluster.clock
        self.writer = PodGroupClaimWriter(self.ledger, self.cluster, self.claim_writer)
        self._enabled = self.options.group_claims_enabled and self.options.pod_group_claims
        self._competing = CompetingController(self.ledger)
        # Set when another controller is detected: that ends the work for the life of the process.
        self._stop_reason: str | None = None
        self._has_begun = False
        self._changed: set[Key] = set()
        self._work_of: dict[Key, _GroupWork] = {}
        self._work = StoppableWork()

    def notes(self) -> Mapping[str, str]:
        """Return the state for `/readyz?verbose`; nothing while the controller is off or has no problem."""
        if not self._enabled:
            return {}
        if self._stop_reason is not None:
            return {"group-claims": self._stop_reason}
        if self._has_begun and not self._groups.api_version:
            return {"group-claims": "on, but PodGroups are not served by this API server: nothing to do"}
        problems = {
            key: text for key, work in self._work_of.items() if (text := next(filter(None, work.problems.values()), ""))
        }
        if problems:
            key, problem = min(problems.items())
            return {"group-claims": f"PodGroups that lack something: {len(problems)}; {'/'.join(key)}: {problem}"}
        return {}

    async def keep_reconciling(self) -> None:
        """Reconcile until `stop`, or until another controller is detected."""
        self.metrics.group_claims_refused.set(self._stop_reason is not None)
        if not self._enabled:
            return
        with closing(self.begin()):
            if not self._groups.api_version:
                _LOG.info("claims of PodGroups need no controller: the API server does not serve PodGroups")
                return
            next_sweep = self._clock.monotonic()
            while self._stop_reason is None and not await self._work.stopped_within(_TICK_SECONDS):
                now = self._clock.monotonic()
                if now >= next_sweep:
                    self.sweep()
                    next_sweep = now + _SWEEP_SECONDS
                await self.reconcile_due()

    def begin(self) -> Subscription:
        """Begin a term, which ends with the subscription to changes.

        Existing objects count as they are; what appears from now on may be evidence of another controller.
        """
        self._work.begin()
        self._has_begun = True
        self._changed.clear()
        self._work_of.clear()
        self._competing.begin()
        return self.ledger.events.subscribe(PodGroupChanged, lambda event: self._changed.add(event.key))

    async def stop(self) -> None:
        """End `keep_reconciling`; return when the writes in progress have ended."""
        self._has_begun = False
        await self._work.stop()

    def sweep(self) -> None:
        self._competing.prune()
        self._changed.update(group.metadata.key for group in self.ledger.pod_groups.all())

    async def reconcile_due(self) -> None:
        """Reconcile the PodGroups that have changed, or for which a step is due."""
        now = self._clock.monotonic()
        keys = self._changed | {key for key, work in self._work_of.items() if now >= work.next}
        self._changed.clear()
        loop = asyncio.get_running_loop()
        turn = loop.time()
        for key in sorted(keys):
            if self._stop_reason is not None or self._work.is_stopping:
                return
            # A group whose reconciliation raises is tried again later, after the other groups.
            work = self._work_of.setdefault(key, _GroupWork())
            work.next = self._clock.monotonic() + _RETRY_SECONDS["failed"]
            with self.supervisor.sparing(BackgroundTask.GROUP_CLAIMS, pod_group=key):
                group = self.ledger.pod_groups.get(*key)
                if group is None or not (group.spec.resource_claims or is_kept_by_protection(group)):
                    del self._work_of[key]
                else:
                    await self._reconcile(group, work)
            if loop.time() - turn > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn = loop.time()

    async def _reconcile(self, group: PodGroup, work: _GroupWork) -> None:
        key = group.metadata.key
        plan = await plan_reconcile(group, self.ledger, self._groups.api_version, lambda: asyncio.sleep(0))
        if self._work.is_stopping:
            return
        evidence = self._competing.evidence(group, plan)
        if evidence is not None:
            self._stop_reason = (
                f"stopped, because another controller makes the claims of PodGroups: it made {evidence}; "
                "scheduling.group_claims_enabled is for clusters in which nobody else does"
            )
            _LOG.error("the claims of PodGroups are left to another controller", reason=self._stop_reason)
            self.metrics.group_claims_refused.set(True)
            await self._withdraw(list(self.ledger.pod_groups.all()))
            return
        suspicion = self._competing.suspicion(group)
        if suspicion is not None:
            await self._suspend(group, work, suspicion)
            return
        is_leaving = is_kept_by_protection(group) and all(pod.finished for pod in self.ledger.pods.members(*key))
        if plan.is_done and not is_leaving:
            self._work_of.pop(key, None)
            return
        now, before = self._clock.monotonic(), work.due
        steps = {step.key: step for step in self._steps(group, plan, is_leaving=is_leaving)}
        # A step that the group needed before keeps its time.
        due = work.due = {step.key: before.get(step.key, now + step.delay) for step in steps.values()}
        # The time of a member runs from when it appears, although its claims may not be known yet.
        for step_key in map(_publish_key, plan.waiting):
            due.setdefault(step_key, before.get(step_key, now + PUBLISH_DELAY_SECONDS))
        work.problems = {step_key: problem for step_key, problem in work.problems.items() if step_key in steps}
        ready = [step for step in steps.values() if now >= due[step.key]]
        with self._work.piece():
            await self._run_steps(key, work, ready)
        work.next = now if ready else min((due[step_key] for step_key in steps), default=math.inf)

    def _steps(self, group: PodGroup, plan: ReconcilePlan, *, is_leaving: bool) -> Iterator[_Step]:
        """Yield the writes that the group needs and that can be done, in order."""
        grace = self.options.group_claims_grace_seconds
        for create in plan.create:
            yield _Step(("make", create.owner.uid, create.entry), grace, partial(self.writer.create, create))
        if plan.record:
            key = ("record", *(text for entry in sorted(plan.record.items()) for text in entry))
            yield _Step(key, PUBLISH_DELAY_SECONDS, partial(self._record, group, plan.record))
        if is_leaving:
            yield _Step(("let_go", group.metadata.uid), grace, partial(self.writer.unprotect, group))
        for publish in plan.publish:
            yield _Step(_publish_key(publish.pod.uid), PUBLISH_DELAY_SECONDS, partial(self._publish, publish))

    async def _record(self, group: PodGroup, claims: Mapping[str, str]) -> None:
        """Record the claims in the group's status, if its resourceVersion is still that of the plan."""
        self._competing.will_record(group, claims.values())
        await self._groups.record_claims(group, claims)

    async def _publish(self, publish: PublishClaims) -> None:
        """Record the claims in the pod's status, if its resourceVersion is still that of the plan."""
        pod = publish.pod
        self._competing.will_publish(pod.uid)
        await self.cluster.pods.record_claims(pod.namespace, pod.name, pod.uid, pod.resource_version, publish.claims)

    async def _run_steps(self, key: Key, work: _GroupWork, steps: Sequence[_Step]) -> None:
        """Do these writes, some at a time.  Each is due again later, in case it failed or the watch never delivers it."""
        for start in range(0, len(steps), _PARALLEL_WRITES):
            if self._work.is_stopping:
                return
            batch = steps[start : start + _PARALLEL_WRITES]
            results = await asyncio.gather(*(self._write(step.key[0], step.write) for step in batch))
            for step, (outcome, problem) in zip(batch, results, strict=True):
                work.due[step.key] = self._clock.monotonic() + _RETRY_SECONDS[outcome]
                work.note_problem(key, step.key, problem)

    async def _write(self, step: str, write: Callable[[], Awaitable[object]]) -> tuple[str, str]:
        """Return the outcome of a write: done, changed (an object changed meanwhile) or failed; and the problem of a failed one."""
        outcome, problem = "done", ""
        try:
            await write()
        except (ConflictError, NotFoundError):
            outcome = "changed"
        except (ClusterError, ModelError) as error:
            outcome, problem = "failed", str(error)
        self.metrics.group_claims.labels(step, outcome).inc()
        return outcome, problem

    async def _suspend(self, group: PodGroup, work: _GroupWork, suspicion: str) -> None:
        """Do nothing for a group while a claim exists that another controller, or a user, created for it."""
        work.due = {}
        work.problems = {step: problem for step, problem in work.problems.items() if step == _SUSPENDED}
        problem = f"somebody else made {suspicion}: while it is there, nothing is done for this PodGroup"
        work.note_problem(group.metadata.key, _SUSPENDED, problem)
        await self._withdraw([group])

    async def _withdraw(self, groups: Sequence[PodGroup]) -> None:
        """Delete the claims that this service created for these groups and that no status records."""
        with self._work.piece():
            for group in groups:
                for record in unrecorded(group, self.ledger):
                    await self._write("withdraw", partial(self.writer.withdraw, record.claim))


def _publish_key(pod_uid: str) -> StepKey:
    return ("tell", pod_uid)
