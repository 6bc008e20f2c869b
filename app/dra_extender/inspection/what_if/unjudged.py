"""What may keep a pod that would get its devices, and that no trial judges: volumes, other pods, quotas, its scheduler."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Final

import msgspec

from dra_extender.allocator.state.rejection import Rejection
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.pod_facts import SCHEDULING_GATED, PodFacts, read_pod_facts
from dra_extender.inspection.what_if.copied_cluster import is_made
from dra_extender.inspection.why.reported_events import (
    JUDGED,
    absent_scheduler,
    creation_events,
    reported_reasons,
    scheduler_message,
)
from dra_extender.model.api_json import ModelError, decode, listed
from dra_extender.model.pod import Pod, WholePod, WholePodSpec
from dra_extender.model.pod_placement import Affinity
from dra_extender.scheduling.claims.lookup import find_claims

_STRICT: Final = "DoNotSchedule"
_MOST_NAMED: Final = 3


_DECODER: Final = msgspec.json.Decoder(WholePod)


class Unjudged:
    """Finds what a trial does not judge; `view` has the cluster as it is before any pod is placed."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        # Pods that a trial places are no trace of their scheduler.
        self._acting = view.acting_schedulers

    def reasons(self, pod: Pod, data: bytes, *, is_new: bool) -> tuple[str, ...]:
        """Return what may keep the pod (API JSON `data`), each as half a sentence; `is_new`: the cluster has no such pod yet."""
        return tuple(dict.fromkeys(self._found(pod, data, read_pod_facts(data), is_new=is_new)))

    def _found(self, pod: Pod, data: bytes, facts: PodFacts, *, is_new: bool) -> Iterator[str]:
        absent = absent_scheduler(self._view, pod, facts, self._acting)
        if absent:
            yield absent
        with suppress(ModelError):
            yield from _of_spec(decode("Pod", _DECODER, data).spec)
        if is_new:
            yield "ResourceQuotas"
        found = find_claims(pod, self._view.ledger)
        claims = () if isinstance(found, Rejection) else found
        if any(is_made(claim.record.claim.metadata.uid) for claim in claims):
            for event in creation_events(self._view, pod)[:1]:
                yield f"Event {event.reason}: {event.message}"
        if facts.reason != SCHEDULING_GATED:
            for reason in reported_reasons(scheduler_message(self._view, pod, facts)):
                if reason.kind not in JUDGED:
                    yield f"kube-scheduler reports: {reason.text}"


def _of_spec(spec: WholePodSpec) -> Iterator[str]:
    claims = [each.persistent_volume_claim.claim_name for each in spec.volumes or () if each.persistent_volume_claim]
    claims += [f"of volume {each.name}" for each in spec.volumes or () if each.ephemeral is not None]
    if claims:
        yield f"PersistentVolumeClaim {listed(claims, _MOST_NAMED)}"
    affinity = spec.affinity or Affinity()
    if any(terms is not None and terms.required for terms in (affinity.pod_affinity, affinity.pod_anti_affinity)):
        yield "affinity to other pods"
    if any(each.when_unsatisfiable == _STRICT for each in spec.topology_spread_constraints or ()):
        yield "topology spread constraints"
