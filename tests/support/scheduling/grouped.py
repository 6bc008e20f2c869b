"""PodGroups whose pods share a claim, in memory, with a controller-manager and kubelets whose gates can be off."""

import dataclasses
from typing import Final

from dra_extender.inspection.audit.claims import admission_failures
from dra_extender.ledger.pod_groups import GROUP_RESERVATIONS_FEATURE, GroupEntryPolicy
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.resource_claim import claim_from
from dra_extender.simulator.apiserver.objects import Json, StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.reclaiming import OPTIONS
from tests.support.scheduling.world import CONDITIONS, InMemoryExtender

NAMED: Final = {"name": "gpu", "resourceClaimName": "shared"}
TEMPLATED: Final = {"name": "gpu", "resourceClaimTemplateName": "template"}
GROUP: Final = "team"


class PodGroupExtender(InMemoryExtender):
    """Two nodes: n1 whose kubelet has the gate and declares it, n2 whose kubelet has not."""

    def __init__(self, setting: str = "always", *, served: bool = True, backoff: float = 0.0) -> None:
        self._are_groups_served = served
        super().__init__(
            dataclasses.replace(
                OPTIONS,
                reserve_for_pod_groups=GroupEntryPolicy(setting),
                device_backoff_seconds=backoff,
                binding_timeout_seconds=600.0,
            )
        )
        self.device_class()
        self.create(
            StoredKind.NODE,
            {"metadata": {"name": "n1"}, "status": {"declaredFeatures": [GROUP_RESERVATIONS_FEATURE]}},
        )
        self.node("n2")

    def start(self) -> None:
        super().start()
        if not self._are_groups_served:
            feeds = {kind: feed for kind, feed in sinks_of(self.ledger).items() if kind != str(StoredKind.POD_GROUP)}
            self.cluster.watch.attach(feeds)
            self.ledger.pod_groups.served = False

    def set_up(self, setting: str, *, served: bool = True) -> None:
        """A new process with this setting, on an API server that serves PodGroups or does not any more."""
        self._are_groups_served = served
        self.options = dataclasses.replace(self.options, reserve_for_pod_groups=GroupEntryPolicy(setting))
        self.start()
        self.sync()

    def devices_everywhere(self, count: int = 1, *, conditions: bool = False) -> None:
        """A pool of devices that both nodes reach."""
        self.fabric(*({"name": f"gpu-{index}", **(CONDITIONS if conditions else {})} for index in range(count)))

    def group(self, *entries: Json, min_count: int = 0) -> None:
        self.add_group(GROUP, min_count, resourceClaims=list(entries))

    def template(self) -> None:
        request = {"name": "req", "exactly": {"deviceClassName": "gpu", "count": 1}}
        spec = {"spec": {"devices": {"requests": [request]}}}
        self.create(StoredKind.TEMPLATE, {"metadata": {"name": "template", "namespace": "default"}, "spec": spec})

    def member(self, name: str, *entries: Json, named: bool = True) -> None:
        """A pod of the group; without `named` the API server has dropped that."""
        group: Json = {"schedulingGroup": {"podGroupName": GROUP}} if named else {}
        self.add_pod(name, resourceClaims=list(entries or (NAMED,)), **group)

    def claims_by_pod(self) -> dict[str, str]:
        found = {}
        for pod in self.cluster.store.all(StoredKind.POD):
            recorded = {each["name"]: each["resourceClaimName"] for each in _statuses(pod)}
            (entry,) = pod["spec"]["resourceClaims"]
            name = entry.get("resourceClaimName") or recorded.get(entry["name"])
            if name:
                found[pod["metadata"]["name"]] = name
        return found

    def reserved(self, claim: str = "shared") -> list[str]:
        """For whom the claim is reserved, as resource/name, in order."""
        status = self.claim(claim).get("status", {})
        return [f"{each['resource']}/{each['name']}" for each in status.get("reservedFor", [])]

    def is_bound(self, pod: str) -> bool:
        return bool(self.pod(pod)["spec"].get("nodeName"))

    def kubelet_accepts(self, pod: str, *, gate: bool) -> bool:
        """Whether the kubelet on the pod's node would start it, its gate being on or off."""
        claims = {claim.metadata.key: claim for claim in map(claim_from, self.cluster.store.all(StoredKind.CLAIM))}
        kubelets = GroupEntryPolicy.ALWAYS if gate else GroupEntryPolicy.NEVER
        return not list(admission_failures(pod_from(self.pod(pod)), claims.get, kubelets, None))

    async def bound(self, *pods: str, node: str = "n1") -> None:
        """Each is bound there, one after the other."""
        async with self.watching():
            for pod in pods:
                await self.bind(pod, node)
        self.sync()
        assert all(self.is_bound(pod) for pod in pods)

    def report(self, condition: str, claim: str = "shared") -> None:
        super().report(condition, claim)


def _statuses(pod: Json) -> list[Json]:
    found: list[Json] = pod.get("status", {}).get("resourceClaimStatuses") or []
    return found
