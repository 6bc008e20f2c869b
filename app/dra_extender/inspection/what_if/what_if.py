"""What would happen if: where the pods stand before and after changes, and how many more of one pod fit."""

from collections.abc import Iterator, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Final

import msgspec

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.inspection.audit.cluster_audit import evicting_taints
from dra_extender.inspection.audit.published import PublishedDevices
from dra_extender.inspection.objects import KINDS, AssumedGate, ClusterObjects, GateState, require
from dra_extender.inspection.what_if.applied_changes import AppliedChanges
from dra_extender.inspection.what_if.changes import Changes, PodKey
from dra_extender.inspection.what_if.copied_cluster import CopiedCluster
from dra_extender.inspection.what_if.fill import MOST_COPIES, fill, find_subject
from dra_extender.inspection.what_if.report import FORMAT, OutcomeKind, PodOutcome, PodRow, WhatIfReport
from dra_extender.inspection.what_if.trial import Progress, Trial
from dra_extender.inspection.what_if.waiting_gangs import explain_gangs
from dra_extender.inspection.why.report import DEVICES_ONLY
from dra_extender.model.api_json import number_of
from dra_extender.model.device import device_id_of
from dra_extender.model.fields import Gate
from dra_extender.scheduling.claims.lookup import gang_of

_MOST_EVICTIONS: Final = 10
"""Evicted pods that are named, and pods with lost devices."""
_ABSENT: Final = PodOutcome(kind=OutcomeKind.ABSENT)
_ENDED: Final = PodOutcome(kind=OutcomeKind.ENDED)
_WAITS: Final = PodOutcome(kind=OutcomeKind.WAITS)


async def what_if(
    objects: ClusterObjects,
    changes: Changes | None = None,
    subject: PodKey | None = None,
    most: int = MOST_COPIES,
    *,
    policy: PolicyOverlay | None = None,
    progress: Progress | None = None,
) -> WhatIfReport:
    """Return where the pods stand that wait, and those that a change ends or moves; without changes, what happens next.

    `subject` is a pod or ResourceClaimTemplate: how many more of it fit, at `most`, is counted after all waiting pods have been
    placed.  `policy` is in force at the beginning.  The same objects in any order have the same answer.

    Raises:
        ChangeError: a change or the subject names something that is not there.
        UnreadKindsError: a kind could not be read.
    """
    require(objects.origin, KINDS)
    changes = changes or Changes()
    before: _Placed | None = None
    evicted_before: frozenset[str] = frozenset()
    lost_before: frozenset[str] = frozenset()
    if changes:
        before, trial_before = await _place_waiting(CopiedCluster(objects), policy, progress)
        evicted_before = frozenset(_evictions(trial_before))
        lost_before = frozenset(_lost_devices(before, trial_before))
    switched = {gate.gate_name: GateState.ON if is_on else GateState.OFF for gate, is_on in changes.gates}
    others = (known for known in objects.origin.gates if known.gate not in switched)
    gates = (*others, *(AssumedGate(gate=name, state=state) for name, state in sorted(switched.items())))
    copy = CopiedCluster(objects._replace(origin=msgspec.structs.replace(objects.origin, gates=gates)))
    applied = AppliedChanges(copy, changes)
    in_force = policy if changes.policy is None else changes.policy.overlay
    after, trial = await _place_waiting(copy, in_force, progress)
    # Without changes, the pods that are placed wait now.
    before = before or _Placed(dict.fromkeys(after.outcomes, _WAITS), after.running, after.plain)
    rows = tuple(_rows(before, after, applied))
    gangs, left_out = explain_gangs(trial, in_force, (row for row in rows if row.differs or not changes))
    filled = None
    notes = [*map(str, trial.view.unreadable)]
    evictions = [eviction for eviction in _evictions(trial) if eviction not in evicted_before]
    notes += evictions[:_MOST_EVICTIONS]
    if len(evictions) > _MOST_EVICTIONS:
        notes.append(f"kube-controller-manager evicts {number_of(len(evictions) - _MOST_EVICTIONS, 'further pod')}")
    if changes:
        lost = (device for device in _lost_devices(after, trial) if device not in lost_before)
        notes += islice(lost, _MOST_EVICTIONS)
    if left_out:
        notes.append(f"the reasons of {number_of(left_out, 'further gang')} were not looked for")
    if subject is not None:
        fill_subject = find_subject(trial, subject)
        notes += fill_subject.notes
        filled = await fill(trial, fill_subject, most)
        await trial.finish_binds()
    return WhatIfReport(
        format=FORMAT,
        origin=objects.origin,
        changes=tuple(applied.sentences),
        pods=rows,
        fill=filled,
        verified="" if trial.judges_nodes else DEVICES_ONLY,
        held=trial.held,
        notes=tuple(notes),
        gangs=gangs,
    )


class _Placed(msgspec.Struct, frozen=True):
    """Outcomes of the pods that were placed, by key, and the pods that had a node already.

    `plain` ask for no devices.  `gangs`: the keys of the PodGroups of members of gangs, by the member's key.
    """

    outcomes: Mapping[PodKey, PodOutcome]
    running: Mapping[PodKey, PodOutcome]
    plain: frozenset[PodKey] = frozenset()
    gangs: Mapping[PodKey, PodKey] = MappingProxyType({})


async def _place_waiting(
    copy: CopiedCluster, policy: PolicyOverlay | None, progress: Progress | None
) -> tuple[_Placed, Trial]:
    """Place the pods that wait, in a trial of its own that is returned with them."""
    trial = Trial(copy, policy, progress)
    pods = {(pod.namespace, pod.name): pod for pod in trial.view.ledger.pods.all()}
    running = {key: trial.outcome_of(pod) for key, pod in pods.items() if pod.node_name and not pod.finished}
    plain = frozenset(key for key, pod in pods.items() if not pod.needs_devices)
    gangs = {
        key: gang.metadata.key for key, pod in pods.items() if (gang := gang_of(pod, trial.view.ledger)) is not None
    }
    return _Placed(await trial.place_waiting(), running, plain, gangs), trial


def _evictions(trial: Trial) -> Iterator[str]:
    """Yield a sentence for each pod that kube-controller-manager evicts because of the taint of a device; here the pod stays."""
    ledger = trial.view.ledger
    if not trial.view.origin.may_be_on(Gate.DEVICE_TAINTS):
        return
    devices = PublishedDevices(ledger)
    for pod in ledger.pods.all():
        taint = next(evicting_taints(pod, ledger, devices), None) if pod.needs_devices else None
        if taint is not None:
            yield f"kube-controller-manager evicts pod {pod.key}, which is counted as running here: {taint}"


def _lost_devices(placed: _Placed, trial: Trial) -> Iterator[str]:
    """Yield a sentence for each running pod with a device that no slice has; here the pod stays."""
    devices = PublishedDevices(trial.view.ledger)
    for key, outcome in placed.running.items():
        for device in outcome.devices:
            absence = devices.absence(device_id_of(device))
            if absence:
                yield f"pod {'/'.join(key)}, which is counted as running here, has device {device}: {absence}"
                break


def _rows(before: _Placed, after: _Placed, applied: AppliedChanges) -> Iterator[PodRow]:
    moved = applied.ended | applied.evicted
    for key in sorted({*before.outcomes, *after.outcomes, *moved}):
        was = before.outcomes.get(key) or before.running.get(key) or _ABSENT
        will = after.outcomes.get(key) or after.running.get(key) or (_ENDED if key in applied.ended else _ABSENT)
        yield PodRow(
            pod="/".join(key),
            before=was,
            after=will,
            evicted=key in applied.evicted,
            claims=moved.get(key, ()),
            plain=key in after.plain or key in before.plain,
            gang="/".join(after.gangs.get(key) or before.gangs.get(key) or ()),
        )
