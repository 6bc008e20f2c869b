"""What a call reads from the API server: its pod, specs that the ledger does not keep, and claims that the ledger lacks."""

import asyncio
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from dra_extender.ledger.claim_record import ClaimRecord
from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.metadata import version_number
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.runtime.token_bucket import TokenBuckets
from dra_extender.scheduling.call_budget import Awaited, CallBudget
from dra_extender.scheduling.claims.lookup import claim_names, names_missing
from dra_extender.scheduling.ports.cluster import Claims, Clock, ClusterError, NotFoundError, PodGroups, Pods
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options
from dra_extender.scheduling.time_slices import TimeSlices
from dra_extender.telemetry.metrics import Metrics

READS: Final = 16
"""Claims that are read from the API server at the same time; further reads wait for their turn."""
_MOST_SECONDS: Final = 2.0
_LEAST_SECONDS: Final = 0.5
QUESTIONS_RATE: Final = 10.0
"""Questions per second that the pods of a namespace may cause; beyond that, only the watch decides what exists."""
QUESTIONS_BURST: Final = 100.0
_NAMESPACES: Final = 1024
_LOOK_AGAIN_SECONDS: Final = 0.01
READ_BYTES: Final = 256 * 1024
"""The largest pod without a watch event that is decoded as sent, to see whether it needs devices."""
LOOKUPS: Final = 16
"""How many pods are read from the API server at the same time; further calls get an error at once."""
_NODE_SECONDS: Final = 1.0
_NODE_LOOK_SECONDS: Final = 0.02


class UnreadSpecs(NamedTuple):
    """Claims whose specs the ledger does not keep: they have to be read from the API server before a decision."""

    records: tuple[ClaimRecord, ...]

    def __str__(self) -> str:
        return ", ".join(record.claim.metadata.full_name for record in self.records)


class SpecReader:
    """Reads the specs that the ledger does not keep because the claims of their namespace take too much.

    Status and metadata are those of the watch in any case.  The spec is immutable: whenever it was read, it is the claim's if UID
    and digest are the same.
    """

    def __init__(self, ledger: Ledger, claims: Claims, metrics: Metrics, time_slices: TimeSlices) -> None:
        self._ledger = ledger
        self.time_slices = time_slices
        self._claims = claims
        self._metrics = metrics
        self._turns = asyncio.Semaphore(READS)

    async def wait_for(
        self, pod: Pod, awaited: Literal[Awaited.TIME_SLICE] | UnreadSpecs, budget: CallBudget
    ) -> Mapping[str, bytes]:
        """Wait for what an unfinished decision of a call about this pod lacks; a slice of time begins after that."""
        if awaited is Awaited.TIME_SLICE:
            if not await self.time_slices.next(pod, budget):
                raise RetryableError(
                    f"pod {pod.key}: its search takes long, and the namespace has used up its share of the time for such searches"
                )
            return {}
        self.time_slices.interrupt(pod, budget)
        live = await self.read(awaited, budget)
        self.time_slices.reopen(pod, budget)
        return live

    async def read(self, unread: UnreadSpecs, budget: CallBudget) -> Mapping[str, bytes]:
        """Read these claims; then the decision can be made again.  Returns the live objects by UID."""
        uids = {record.claim.metadata.uid for record in unread.records}
        if uids & budget.read_again:
            raise RetryableError(f"claim {unread}: the claims of one pod are too large to be read again together")
        budget.read_again |= uids
        seconds = max(_LEAST_SECONDS, min(_MOST_SECONDS, budget.seconds_left))
        try:
            async with asyncio.timeout(seconds):
                ends = await asyncio.gather(*map(self._read, unread.records), return_exceptions=True)
        except TimeoutError as late:
            self._metrics.claims_read_again.labels("failed").inc()
            raise RetryableError(f"claim {unread}: the API server did not answer in {seconds:.1f} s") from late
        live: dict[str, bytes] = {}
        for record, end in zip(unread.records, ends, strict=True):
            if isinstance(end, BaseException):
                raise end
            live[record.claim.metadata.uid] = end
        return live

    async def _read(self, record: ClaimRecord) -> bytes:
        namespace, name = record.claim.metadata.key
        outcome = "failed"
        try:
            async with self._turns:
                raw = await self._claims.read(namespace, name)
            refusal = self._ledger.claims.complete(record, raw)
            outcome = "changed" if refusal else "ok"
        except NotFoundError as gone:
            outcome = "gone"
            raise RetryableError(f"claim {namespace}/{name} does not exist any more") from gone
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"claim {namespace}/{name}: {problem}") from problem
        finally:
            self._metrics.claims_read_again.labels(outcome).inc()
        if refusal:
            raise RetryableError(f"claim {namespace}/{name} {refusal}")
        return raw


class UndeliveredClaims:
    """Asks the API server about a claim that the ledger lacks, and waits for the watch if there is one."""

    def __init__(self, ledger: Ledger, claims: Claims, time_slices: TimeSlices, options: Options) -> None:
        self._ledger = ledger
        self._claims = claims
        self._clock = time_slices.clock
        self._time_slices = time_slices
        self._seconds = options.new_claim_wait_seconds
        self._questions = TokenBuckets(QUESTIONS_RATE, QUESTIONS_BURST, _NAMESPACES)

    async def wait_for_delivery(self, pod: Pod, budget: CallBudget) -> bool:
        """Return whether the ledger has got claims that the pod names and that it lacked; False if one does not exist.

        kube-scheduler waits meanwhile, so the wait is charged as a search is.  For a namespace that has taken more than its share
        of time there is none: only the watch decides what exists.
        """
        if budget.overdrawn or not self._seconds:
            return False
        missing = self._missing(pod)
        if missing is None:
            return False
        began = self._clock.monotonic()
        try:
            async with asyncio.timeout(self._seconds):
                while missing is not None and await self._exists(pod.namespace, missing):
                    while self._lacks(pod.namespace, missing):  # noqa: ASYNC110 - the watch writes into the ledger
                        await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                    missing = self._missing(pod)
                return missing is None
        except TimeoutError as late:
            raise RetryableError(
                f"claim {pod.namespace}/{missing} is not known yet: the watch has not brought it within {self._seconds:g} s"
            ) from late
        finally:
            self._time_slices.charge(pod, self._clock.monotonic() - began)

    def _missing(self, pod: Pod) -> str | None:
        names = claim_names(self._ledger.pods.newest(pod), self._ledger)
        return next((name for name in names if self._lacks(pod.namespace, name)), None)

    def _lacks(self, namespace: str, name: str) -> bool:
        return self._ledger.claims.by_key(namespace, name) is None

    async def _exists(self, namespace: str, name: str) -> bool:
        if not self._questions.take(namespace, self._clock.monotonic()):
            return False
        try:
            await self._claims.read(namespace, name)
        except NotFoundError:
            return False
        except ClusterError as problem:
            raise RetryableError(f"claim {namespace}/{name} is not known yet: {problem}") from problem
        return True


class PodResolver:
    """Finds the pod that a call is about.

    The pod as sent by the caller is not trusted: the pod of our own watch decides.  A pod that the watch has not delivered yet, or
    without the names of the claims that were created for it, is read from the API server once.
    """

    def __init__(self, ledger: Ledger, pods: Pods, groups: PodGroups, clock: Clock, options: Options) -> None:
        self._ledger = ledger
        self._pods = pods
        self._groups = groups
        self._clock = clock
        self._schedulers = frozenset(options.scheduler_names)
        self._lookups = 0

    async def resolve(self, sent: Pod | RequestPod) -> Pod:
        """Return the pod to place; a pod that is unknown and needs no devices is used as sent: no decision depends on it."""
        pod = self._ledger.pods.by_uid(sent.uid)
        if pod is None and not self._needs_devices(sent):
            return sent if isinstance(sent, Pod) else sent.read()
        if pod is None or (
            names_missing(pod) and version_number(sent.resource_version) > version_number(pod.resource_version)
        ):
            pod = await self.read(sent.namespace, sent.name, sent.uid)
        self.check(pod, sent.namespace, sent.name)
        if pod.node_name or pod.finished:
            raise RetryableError(
                f"pod {pod.key} is {f'bound to node {pod.node_name}' if pod.node_name else 'over'} already"
            )
        return pod

    def delivered(self, namespace: str, name: str, uid: str) -> Pod | None:
        """Return the pod as the watch delivered it; None if the watch has not delivered it yet."""
        pod = self._ledger.pods.by_uid(uid)
        if pod is not None:
            self.check(pod, namespace, name)
        return pod

    async def read(self, namespace: str, name: str, uid: str) -> Pod:
        if self._ledger.pods.was_deleted(uid):
            raise RetryableError(f"pod {namespace}/{name} with UID {uid} does not exist any more")
        if self._lookups >= LOOKUPS:
            raise RetryableError(
                f"pod {namespace}/{name}: the watch has not brought it yet, and {LOOKUPS} others are being looked up"
            )
        self._lookups += 1
        try:
            pod = await self._pods.read(namespace, name)
        except NotFoundError as gone:
            raise RetryableError(f"pod {namespace}/{name} does not exist any more") from gone
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"pod {namespace}/{name}: {problem}") from problem
        finally:
            self._lookups -= 1
        if pod.uid != uid or pod.deleting or self._ledger.pods.was_deleted(uid):
            raise RetryableError(f"pod {namespace}/{name} with UID {uid} does not exist any more")
        self.check(pod, namespace, name)
        return pod

    def check(self, pod: Pod, namespace: str, name: str) -> None:
        """Raise RetryableError if this is not the pod that the caller names, or not ours to place."""
        if pod.name != name or pod.namespace != namespace:
            raise RetryableError(f"the pod with UID {pod.uid} is {pod.key}, not {namespace}/{name}")
        if self._schedulers and pod.scheduler_name not in self._schedulers:
            raise RetryableError(
                f"pod {pod.key} belongs to scheduler {pod.scheduler_name or 'default-scheduler'}; "
                f"scheduling.scheduler_names has {', '.join(sorted(self._schedulers))}"
            )

    async def check_group(self, pod: Pod) -> None:
        """Raise RetryableError if the pod's PodGroup exists and the watch has not delivered it: it may be that of a gang."""
        groups = self._ledger.pod_groups
        if pod.pod_group is None or not groups.served or groups.get(pod.namespace, pod.pod_group) is not None:
            return
        try:
            await self._groups.read(pod.namespace, pod.pod_group)
        except NotFoundError:
            return
        except (ClusterError, ModelError) as problem:
            raise RetryableError(f"PodGroup {pod.namespace}/{pod.pod_group}: {problem}") from problem
        raise RetryableError(f"PodGroup {pod.namespace}/{pod.pod_group} is not known yet: the watch has not brought it")

    async def wait_for_node(self, name: str) -> None:
        """Return when the watch has delivered the node, which kube-scheduler may know a moment before us."""
        if name in self._ledger.nodes:
            return
        deadline = self._clock.monotonic() + _NODE_SECONDS
        while name not in self._ledger.nodes:
            if self._clock.monotonic() >= deadline:
                raise RetryableError(f"node {name} does not exist, as far as the watch has brought")
            await asyncio.sleep(_NODE_LOOK_SECONDS)

    def _needs_devices(self, sent: Pod | RequestPod) -> bool:
        if isinstance(sent, Pod):
            return sent.needs_devices
        return sent.size > READ_BYTES or sent.read().needs_devices
