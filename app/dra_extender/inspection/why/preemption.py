"""Whether kube-scheduler ends the pods of a next step by itself: it preempts for amounts of resources, and never for devices."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import NextStep
from dra_extender.model.api_json import ModelError, decode
from dra_extender.model.pod import Pod, WholePod

_POD: Final = msgspec.json.Decoder(WholePod)
_FOR_NO_DEVICES: Final = "kube-scheduler preempts no pod for devices"
_NEVER: Final = "kube-scheduler does not preempt it: the pod's preemptionPolicy is Never"
_MAY: Final = "kube-scheduler may preempt it by itself"
_SENTENCES: Final = {"Never": _NEVER, "PreemptLowerPriority": _MAY}


def with_preemption(
    view: ClusterView, pod: Pod, steps: Sequence[NextStep], *, for_devices: bool
) -> tuple[NextStep, ...]:
    """Return the steps with what kube-scheduler's preemption does about the pods that they end, all of lower priority than the pod.

    A pod of equal or higher priority is never preempted, and a gang is preempted for in another way.
    """
    sentence = _FOR_NO_DEVICES
    if not for_devices:
        policy = None
        with suppress(ModelError):
            policy = decode("Pod", _POD, view.encoded("pods", pod.name, pod.namespace) or b"").spec.preemption_policy
        # An API server fills in the policy; where it is not known, nothing is said.
        sentence = _SENTENCES.get(policy or "", "")
    if pod.pod_group is not None or not sentence:
        return tuple(steps)
    return tuple(
        msgspec.structs.replace(
            step, ends=tuple(msgspec.structs.replace(ended, preemption=sentence) for ended in step.ends)
        )
        if all(ended.priority < pod.priority for ended in step.ends)
        else step
        for step in steps
    )
