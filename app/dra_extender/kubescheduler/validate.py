"""Checks a KubeSchedulerConfiguration for what would not work with this service.

kube-scheduler accepts without an error much that would place pods without devices: a misspelt plugin name, `ignorable`, a
stanza without a URL.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Final

from dra_extender.config.settings import Settings
from dra_extender.kubescheduler.extenders import check_stanzas
from dra_extender.kubescheduler.render import API_VERSION, KIND, PLUGIN
from dra_extender.manifests.problems import FieldProblem, shown

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_ALL_NODES: Final = 100
_DEFAULT_LEASE: Final = "kube-scheduler"
_FOLLOWED: Final = "(setting leader_election.follow_lease)"


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The limits of the service, in seconds: how long a bind waits for devices, and how long a filter call may search.

    `lease`: the Lease of the kube-scheduler that it follows, if any.  `client_certificate`: callers need one.
    """

    binding_timeout: float = 600.0
    filter_budget: float = 4.0
    lease: str | None = None
    client_certificate: bool = False


def limits_of(settings: Settings) -> ServiceLimits:
    """What these settings mean for kube-scheduler's configuration."""
    scheduling, election = settings.scheduling, settings.leader_election
    lease = election.follow_lease if election.enabled else None
    return ServiceLimits(
        scheduling.binding_timeout_seconds,
        scheduling.filter_budget_seconds,
        lease,
        client_certificate=settings.tls.serves_verbs,
    )


def check(document: object, limits: ServiceLimits) -> list[FieldProblem]:
    """Everything that would not work, in the order of the document; empty when it would."""
    if not isinstance(document, Mapping):
        return [FieldProblem("document", f"expected a {KIND}, got {_kind_of(document)}")]
    wrong = list(_identity(document))
    if wrong:
        return wrong
    return [
        *_leader_election(document, limits.lease),
        *_profiles(document),
        *check_stanzas(
            document.get("extenders"),
            limits.binding_timeout,
            limits.filter_budget,
            client_certificate=limits.client_certificate,
        ),
    ]


def scheduler_names(document: object) -> tuple[str, ...]:
    """The names of the profiles, under which pods ask for this kube-scheduler (`spec.schedulerName`)."""
    profiles = document.get("profiles") if isinstance(document, Mapping) else None
    return tuple(each.get("schedulerName") or _DEFAULT_SCHEDULER for each in _mappings(profiles))


def _identity(document: Mapping[str, Any]) -> Iterator[FieldProblem]:
    for field, wanted in (("apiVersion", API_VERSION), ("kind", KIND)):
        if document.get(field) != wanted:
            yield FieldProblem(field, f"expected {wanted}, got {shown(document.get(field))}")


def _leader_election(document: Mapping[str, Any], lease: str | None) -> Iterator[FieldProblem]:
    given = document.get("leaderElection")
    election = given if isinstance(given, Mapping) else {}
    if lease is not None:
        if election.get("leaderElect", True) is not True:
            yield FieldProblem(
                "leaderElection.leaderElect",
                f"expected true: the service leads where Lease {lease} is held {_FOLLOWED}",
            )
        elif election.get("resourceName", _DEFAULT_LEASE) != lease:
            found = election.get("resourceName", _DEFAULT_LEASE)
            yield FieldProblem("leaderElection.resourceName", f"expected {lease} {_FOLLOWED}, got {shown(found)}")
        return
    names = {each.get("schedulerName") for each in _mappings(document.get("profiles"))}
    if election.get("leaderElect", True) is False or _DEFAULT_SCHEDULER in names:
        return
    if election.get("resourceName", _DEFAULT_LEASE) == _DEFAULT_LEASE:
        yield FieldProblem(
            "leaderElection.resourceName",
            f"expected a name of its own; with {_DEFAULT_LEASE}, which is the default, this scheduler would wait for the "
            "cluster's own one for ever",
        )


def _profiles(document: Mapping[str, Any]) -> Iterator[FieldProblem]:
    profiles = document.get("profiles")
    if not isinstance(profiles, Sequence) or isinstance(profiles, str) or not profiles:
        yield FieldProblem(
            "profiles", f"expected at least one, with plugin {PLUGIN} switched off; the default profile has it on"
        )
        return
    share = document.get("percentageOfNodesToScore")
    for index, profile in enumerate(profiles):
        path = f"profiles[{index}]"
        if not isinstance(profile, Mapping):
            yield FieldProblem(path, f"expected a mapping, got {_kind_of(profile)}")
            continue
        yield from _plugin_off(path, profile.get("plugins"))
        own = profile.get("percentageOfNodesToScore")
        if (share if own is None else own) != _ALL_NODES:
            field = "percentageOfNodesToScore" if own is None else f"{path}.percentageOfNodesToScore"
            yield FieldProblem(
                field,
                f"expected {_ALL_NODES}, got {shown(share if own is None else own)}: kube-scheduler would offer a sample of the "
                "nodes, and a pod whose devices are elsewhere would not be placed",
            )


def _plugin_off(path: str, given: object) -> Iterator[FieldProblem]:
    """The plugin must be off at every extension point, which only `multiPoint` does, and on at none."""
    points = given if isinstance(given, Mapping) else {}
    for point, each in points.items():
        if PLUGIN in _names(each, "enabled"):
            yield FieldProblem(
                f"{path}.plugins.{point}.enabled",
                f"{PLUGIN} is switched on, so that two allocators would run; remove it",
            )
    disabled = _names(points.get("multiPoint"), "disabled")
    if PLUGIN in disabled or "*" in disabled:
        return
    field = f"{path}.plugins.multiPoint.disabled"
    similar = get_close_matches(PLUGIN.lower(), [name.lower() for name in disabled], n=1)
    single = sorted(point for point, each in points.items() if PLUGIN in _names(each, "disabled"))
    if similar:
        meant = next(name for name in disabled if name.lower() == similar[0])
        yield FieldProblem(field, f"{meant!r} is no plugin, which kube-scheduler does not say; expected {PLUGIN}")
    elif single:
        yield FieldProblem(
            field, f"{PLUGIN} is off at {', '.join(single)} alone, and works on at the other points; expected it here"
        )
    else:
        yield FieldProblem(field, f"expected {PLUGIN} here, or two allocators would run")


def _names(point: object, which: str) -> list[str]:
    entries = point.get(which) if isinstance(point, Mapping) else None
    return [str(each.get("name")) for each in _mappings(entries)]


def _mappings(given: object) -> list[Mapping[str, Any]]:
    if not isinstance(given, Sequence) or isinstance(given, str):
        return []
    return [each for each in given if isinstance(each, Mapping)]


def _kind_of(value: object) -> str:
    return "nothing" if value is None else type(value).__name__
