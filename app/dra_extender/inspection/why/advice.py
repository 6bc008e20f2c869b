"""What helps without a trial: another DeviceClass that is known to be meant, a missing object, a look at a driver."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Final

from dra_extender.allocator.demand.demand import SearchableRequest
from dra_extender.allocator.state.rejection import Code, Rejection
from dra_extender.cel.errors import CelCompileError
from dra_extender.cel.explain.nearness import may_hold
from dra_extender.cel.program import Program
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.why.report import NextStep, NodeReason, ReportedReason
from dra_extender.inspection.why.reported_events import creation_events
from dra_extender.model.pod import Pod

_SEPARATORS: Final = re.compile(r"[-.]")
_SHORT: Final = 5
"""A word with fewer letters may be another one for a single letter: gpu, vgpu, cpu."""
_LONG: Final = 8
"""The last letter of a name that has so many may be missing, or one too much."""


def meant_class(view: ClusterView, missing: str) -> str | None:
    """Return the class whose name was misspelt as that of one that does not exist; None if there is none or several."""
    found = [name for name in view.ledger.classes if is_slip(missing, name)]
    return found[0] if len(found) == 1 else None


def is_slip(written: str, name: str) -> bool:
    """Return whether one name is the other with a slip: other separators, or one letter of a long word.

    Digits tell kinds apart (a10, a100), and so may every letter of a short word.
    """
    if written == name:
        return False
    parts, others = _SEPARATORS.split(written), _SEPARATORS.split(name)
    if "".join(parts) == "".join(others):
        return True
    pairs = [pair for pair in zip(parts, others, strict=False) if pair[0] != pair[1]]
    if len(parts) != len(others) or len(pairs) != 1:
        return False
    ((word, other),) = pairs
    if not (word + other).isalpha():
        return False
    is_long = min(len(word), len(other)) >= _SHORT or (
        min(len(written), len(name)) >= _LONG and (written.startswith(name) or name.startswith(written))
    )
    return is_long and _is_one_letter(word, other)


def _is_one_letter(word: str, other: str) -> bool:
    """Return whether one letter is added, missing or another one, or two neighbours have changed places."""
    edits = [each for each in SequenceMatcher(None, word, other, autojunk=False).get_opcodes() if each[0] != "equal"]
    changed = sum(max(end - start, other_end - other_start) for _, start, end, other_start, other_end in edits)
    swapped = sorted(word) == sorted(other) and sum(a != b for a, b in zip(word, other, strict=True)) == len("ab")
    return changed == 1 or swapped


def contradicted_class(view: ClusterView, option: SearchableRequest) -> str | None:
    """Return the one class whose devices the request's own selectors mean, where those of its class cannot be; else None.

    A request without selectors of its own says nothing of what it means.
    """
    own = len(option.device_class.spec.selectors)
    selectors = option.selectors.programs
    drivers = {each.driver for each in view.ledger.slices.by_name.values()}
    meant = {driver for driver in drivers if may_all_hold(selectors[own:], driver)}
    if not meant or meant == drivers or any(may_all_hold(selectors[:own], account) for account in meant):
        return None
    names = [
        name
        for name, each in view.ledger.classes.items()
        if any(
            all(may_hold(found.cel.expression, driver) for found in each.spec.selectors if found.cel)
            for driver in meant
        )
    ]
    return names[0] if len(names) == 1 else None


def may_all_hold(programs: Iterable[Program | CelCompileError], driver: str) -> bool:
    """Return whether all these selectors can be true for a device of the driver; those that do not compile do not count."""
    return all(
        may_hold(program.expression, driver, program.emulate) for program in programs if isinstance(program, Program)
    )


_QUOTA: Final = re.compile(r"exceeded quota: ([a-z0-9.-]+)")
_ADMIN_LABEL: Final = re.compile(r"resource\.[a-z0-9.]+/admin-access")
_CLAIMS: Final = "resourceclaims"
_TEMPLATES: Final = "resourceclaimtemplates"
_LOOK: Final = "wait until the extender tries again; check why the driver did not make the devices ready"
_AS_REPORTED: Final[Mapping[Code, str]] = MappingProxyType({Code.COOLING_DOWN: _LOOK, Code.NODE_BACKED_OFF: _LOOK})


def advice(view: ClusterView, pod: Pod, rejection: Rejection, reason: NodeReason) -> NextStep | None:
    """Return what helps against this reason; None where nothing can be said."""
    advise = _BY_CODE.get(rejection.code)
    text = "" if advise is None else advise(view, pod, rejection, reason)
    return NextStep(text=text) if text else None


def _claim_missing(view: ClusterView, pod: Pod, rejection: Rejection, _: NodeReason) -> str:
    own = rejection.detail.startswith(f"{pod.namespace}/")
    unread = any(kind.kind == _CLAIMS for kind in view.origin.missing)
    verb = "look whether" if unread else "create"
    return f"{verb} ResourceClaim {rejection.detail}{' exists' if unread else ''}" if own else ""


def _not_created(view: ClusterView, pod: Pod, rejection: Rejection, _: NodeReason) -> str:
    entry = next((claim for claim in pod.claims if claim.name == rejection.claim), None)
    template = None if entry is None else entry.resource_claim_template_name
    if template and any(kind.kind == _TEMPLATES for kind in view.origin.missing):
        return f"look whether ResourceClaimTemplate {pod.namespace}/{template} exists"
    if template and view.stored(_TEMPLATES, template, pod.namespace) is None:
        return f"create ResourceClaimTemplate {pod.namespace}/{template}"
    events = creation_events(view, pod)
    if events:
        return _against(events[0].message, pod, template or "")
    unread = view.unread_events(pod.namespace)
    if unread:
        return f"look at the Events of the pod, which were not read: {unread}"
    return "wait; no Event says why the claim is not created, so it is not known whether kube-controller-manager runs"


def _against(message: str, pod: Pod, template: str) -> str:
    """Return what helps against a failure to create a claim; empty where the message of the Event has to suffice."""
    quota = _QUOTA.search(message)
    if quota is not None:
        return f"end what uses ResourceQuota {pod.namespace}/{quota[1]}, or raise it"
    label = _ADMIN_LABEL.search(message)
    if label is not None:
        return f"set the label {label[0]}=true on namespace {pod.namespace}"
    return (
        f"correct ResourceClaimTemplate {pod.namespace}/{template}" if template and " is invalid: " in message else ""
    )


def _group_missing(_: ClusterView, pod: Pod, __: Rejection, ___: NodeReason) -> str:
    return f"create PodGroup {pod.namespace}/{pod.pod_group}"


def _pool_incomplete(_: ClusterView, __: Pod, ___: Rejection, reason: NodeReason) -> str:
    pool = reason.pool
    return "" if pool is None else f"wait; check driver {pool.driver}, which publishes the other slices"


def _pool_invalid(_: ClusterView, __: Pod, rejection: Rejection, ___: NodeReason) -> str:
    driver = rejection.detail.removeprefix("pool ").partition("/")[0]
    return f"check driver {driver}" if rejection.detail.startswith("pool ") else ""


def reported_advice(reported: Sequence[ReportedReason]) -> tuple[NextStep, ...]:
    """Return what helps against reasons that the running extender alone knows, as kube-scheduler reports them."""
    texts = (
        _AS_REPORTED.get(code, "") for code in _AS_REPORTED if any(code.value in reason.text for reason in reported)
    )
    return tuple(NextStep(text=text) for text in dict.fromkeys(texts))


def _said(text: str) -> Callable[[ClusterView, Pod, Rejection, NodeReason], str]:
    return lambda *_: text


_BY_CODE: Final[Mapping[Code, Callable[[ClusterView, Pod, Rejection, NodeReason], str]]] = MappingProxyType(
    {
        Code.CLAIM_MISSING: _claim_missing,
        Code.CLAIM_NOT_CREATED: _not_created,
        Code.CLAIM_DELETING: _said("create the claim again once it is gone"),
        Code.CLAIM_FOREIGN: _said("create the pod again: the claim that its status names belongs to another object"),
        Code.CLAIM_FULLY_RESERVED: _said("end a pod that uses the claim"),
        Code.POD_GROUP_MISSING: _group_missing,
        Code.SELECTOR_INVALID: _said("correct the selector"),
        Code.SELECTOR_FAILED: _said("correct the selector"),
        Code.POOL_INCOMPLETE: _pool_incomplete,
        Code.POOL_INVALID: _pool_invalid,
    }
)
