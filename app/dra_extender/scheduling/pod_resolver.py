"""The pod that a call is about, from the watch or the API server."""

import asyncio
from typing import Final

from dra_extender.ledger.ledger import Ledger
from dra_extender.model.api_json import ModelError
from dra_extender.model.metadata import version_number
from dra_extender.model.pod import Pod, RequestPod
from dra_extender.scheduling.claims.lookup import names_missing
from dra_extender.scheduling.ports.cluster import Clock, ClusterError, NotFoundError, Pods
from dra_extender.scheduling.ports.errors import RetryableError
from dra_extender.scheduling.ports.options import Options

READ_BYTES: Final = 256 * 1024
"""The largest pod without a watch event that is decoded as sent, to see whether it needs devices."""
LOOKUPS: Final = 16
"""How many pods are read from the API server at the same time; further calls get an error at once."""
_NODE_SECONDS: Final = 1.0
_LOOK_AGAIN_SECONDS: Final = 0.02


class PodResolver:
    """Finds the pod that a call is about.

    The pod as sent by the caller is not trusted: the pod of our own watch decides.  A pod that the watch has not delivered yet, or
    without the names of the claims that were created for it, is read from the API server once.
    """

    def __init__(self, ledger: Ledger, pods: Pods, clock: Clock, options: Options) -> None:
        self._ledger = ledger
        self._pods = pods
        self._clock = clock
        self._schedulers = frozenset(options.scheduler_names)
        self._lookups = 0

    async def resolve(self, sent: Pod | RequestPod) -> Pod:
        """Return the pod to place; a pod that is unknown and needs no devices is used as sent: no decision depends on it."""
        delivered = self._ledger.pods.by_uid(sent.uid)
        if delivered is not None and not (
            names_missing(delivered)
            and version_number(sent.resource_version) > version_number(delivered.resource_version)
        ):
            pod = delivered
        elif delivered is None and not self._needs_devices(sent):
            return sent if isinstance(sent, Pod) else sent.read()
        else:
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

    async def wait_for_node(self, name: str) -> None:
        """Return when the watch has delivered the node, which kube-scheduler may know a moment before us."""
        if name in self._ledger.nodes:
            return
        deadline = self._clock.monotonic() + _NODE_SECONDS
        while name not in self._ledger.nodes:
            if self._clock.monotonic() >= deadline:
                raise RetryableError(f"node {name} does not exist, as far as the watch has brought")
            await asyncio.sleep(_LOOK_AGAIN_SECONDS)

    def _needs_devices(self, sent: Pod | RequestPod) -> bool:
        if isinstance(sent, Pod):
            return sent.needs_devices
        return sent.size > READ_BYTES or sent.read().needs_devices
