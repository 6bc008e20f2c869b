"""Checks a KubeSchedulerConfiguration for what would not work with this service.

kube-scheduler accepts without an error much that would place pods without devices: a misspelt plugin name, `ignorable`, a
stanza without a URL.  The service has two stanzas in `extenders`, each with its own time limit.
"""

from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from dra_extender.cel.values.times import SECOND, parse_go_duration
from dra_extender.config.scheduler_configuration import API_VERSION, KIND, PLUGIN, VERBS
from dra_extender.config.scheduling_settings import (
    BIND_MARGIN_SECONDS,
    FILTER_HTTP_SECONDS,
    SchedulingSettings,
    bind_http_seconds,
)
from dra_extender.config.service_settings import LeaderElectionSettings
from dra_extender.config.settings import Settings
from dra_extender.manifests.problems import FieldProblem, shown

_DEFAULT_SCHEDULER: Final = "default-scheduler"
_ALL_NODES: Final = 100
_DEFAULT_LEASE: Final = "kube-scheduler"
_DEFAULT_LEASE_NAMESPACE: Final = "kube-system"
_FOLLOWED: Final = "(setting leader_election.follow_lease)"
_CHOOSING: Final = ("filterVerb", "prioritizeVerb", "preemptVerb")
_SHARED: Final = ("urlPrefix", "enableHTTPS", "tlsConfig")
_ROUNDING: Final = 1e-6
_DEFAULT_HTTP_SECONDS: Final = 5.0
_FIELDS: Final = frozenset(
    {*VERBS, *_SHARED, "weight", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"}
)


def check(document: object, settings: Settings) -> list[FieldProblem]:
    """Find everything that would not work with a service of these settings, in the order of the document."""
    if not isinstance(document, Mapping):
        return [FieldProblem("document", f"expected a {KIND}, got {_kind_of(document)}")]
    wrong = [
        FieldProblem(field, f"expected {expected}, got {shown(document.get(field))}")
        for field, expected in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(field) != expected
    ]
    return wrong or [
        *_leader_election(document, settings.leader_election),
        *_profiles(document),
        *_extenders(document.get("extenders"), settings),
    ]


def scheduler_names(document: object) -> tuple[str, ...]:
    """Return the names of the profiles, under which pods ask for this kube-scheduler (`spec.schedulerName`)."""
    profiles = document.get("profiles") if isinstance(document, Mapping) else None
    return tuple(profile.get("schedulerName") or _DEFAULT_SCHEDULER for profile in _mappings(profiles))


def _leader_election(document: Mapping[str, Any], settings: LeaderElectionSettings) -> Iterator[FieldProblem]:
    lease = settings.follow_lease if settings.enabled else None
    stanza = document.get("leaderElection")
    election = stanza if isinstance(stanza, Mapping) else {}
    elects, name = election.get("leaderElect", True), election.get("resourceName", _DEFAULT_LEASE)
    if lease is not None:
        if elects is not True:
            yield FieldProblem(
                "leaderElection.leaderElect",
                f"expected true: the service leads where Lease {lease} is held {_FOLLOWED}",
            )
        elif name != lease:
            yield FieldProblem("leaderElection.resourceName", f"expected {lease} {_FOLLOWED}, got {shown(name)}")
        namespace, own_namespace = (
            election.get("resourceNamespace", _DEFAULT_LEASE_NAMESPACE),
            settings.known_namespace(),
        )
        if own_namespace is not None and namespace != own_namespace:
            yield FieldProblem(
                "leaderElection.resourceNamespace",
                f"expected {own_namespace}, the namespace of the service, got {shown(namespace)}; kustomize's `namespace:` "
                "does not change it",
            )
        return
    profiles = {profile.get("schedulerName") for profile in _mappings(document.get("profiles"))}
    if elects is not False and _DEFAULT_SCHEDULER not in profiles and name == _DEFAULT_LEASE:
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


def _plugin_off(path: str, plugin_sets: object) -> Iterator[FieldProblem]:
    """Check that the plugin is off at every extension point, which only `multiPoint` does, and on at none."""
    points = plugin_sets if isinstance(plugin_sets, Mapping) else {}
    for point, plugins in points.items():
        if PLUGIN in _names(plugins, "enabled"):
            yield FieldProblem(
                f"{path}.plugins.{point}.enabled",
                f"{PLUGIN} is switched on, so that two allocators would run; remove it",
            )
    disabled = _names(points.get("multiPoint"), "disabled")
    if PLUGIN in disabled or "*" in disabled:
        return
    field = f"{path}.plugins.multiPoint.disabled"
    similar = get_close_matches(PLUGIN.lower(), [name.lower() for name in disabled], n=1)
    single = sorted(point for point, plugins in points.items() if PLUGIN in _names(plugins, "disabled"))
    if similar:
        meant = next(name for name in disabled if name.lower() == similar[0])
        yield FieldProblem(field, f"{meant!r} is no plugin, which kube-scheduler does not say; expected {PLUGIN}")
    elif single:
        yield FieldProblem(
            field, f"{PLUGIN} is off only at {', '.join(single)}, and works on at the other points; expected it here"
        )
    else:
        yield FieldProblem(field, f"expected {PLUGIN} here, or two allocators would run")


def _names(point: object, which: str) -> list[str]:
    entries = point.get(which) if isinstance(point, Mapping) else None
    return [str(entry.get("name")) for entry in _mappings(entries)]


def _mappings(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]


def _kind_of(value: object) -> str:
    return "nothing" if value is None else type(value).__name__


class _Stanza(NamedTuple):
    """One of the `extenders`."""

    path: str
    fields: Mapping[str, Any]

    def get(self, name: str) -> Any:
        return self.fields.get(name)

    def at(self, name: str) -> str:
        return f"{self.path}.{name}"

    @property
    def url(self) -> str:
        return str(self.get("urlPrefix") or "").rstrip("/")

    @property
    def chooses(self) -> bool:
        """Return whether it has a verb that chooses nodes."""
        return any(self.get(verb) for verb in _CHOOSING)

    @property
    def trust(self) -> Mapping[str, Any]:
        trust = self.get("tlsConfig")
        return trust if isinstance(trust, Mapping) else {}


def _extenders(value: object, settings: Settings) -> list[FieldProblem]:
    """Check the stanzas of this service; those of other extenders are ignored."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return [
            FieldProblem("extenders", "expected two stanzas for this service, one of them with bindVerb; there is none")
        ]
    stanzas = [
        _Stanza(f"extenders[{index}]", stanza) for index, stanza in enumerate(value) if isinstance(stanza, Mapping)
    ]
    binding = [stanza for stanza in stanzas if stanza.get("bindVerb")]
    if len(stanzas) < len(value) or len(binding) != 1:
        return [
            FieldProblem("extenders", f"expected mappings, exactly one of them with bindVerb; {len(binding)} have it")
        ]
    ours = _of_this_service(stanzas, binding[0])
    return [
        *_verbs(ours),
        *(problem for stanza in ours for problem in _fields(stanza, client_certificate=settings.tls.serves_verbs)),
        *_agreement(ours),
        *(problem for stanza in ours for problem in _times(stanza, stanza is binding[0], settings.scheduling)),
    ]


def _of_this_service(stanzas: Sequence[_Stanza], binding: _Stanza) -> list[_Stanza]:
    """Return the stanza with bindVerb and the stanzas with its URL; if it is alone, return every stanza that chooses nodes."""
    same = [stanza for stanza in stanzas if stanza is binding or stanza.url == binding.url]
    if len(same) > 1 or binding.chooses:
        return same
    return [stanza for stanza in stanzas if stanza is binding or stanza.chooses]


def _verbs(ours: Sequence[_Stanza]) -> Iterator[FieldProblem]:
    for verb, expected in VERBS.items():
        having = [stanza for stanza in ours if stanza.get(verb)]
        if not having:
            yield FieldProblem(
                f"extenders[].{verb}", f"expected {expected} in one stanza of this service; it is in none"
            )
        for stanza in having:
            if stanza.get(verb) != expected:
                yield FieldProblem(stanza.at(verb), f"expected {expected}, got {shown(stanza.get(verb))}")
        if len(having) > 1:
            yield FieldProblem(having[1].at(verb), f"{expected} would be called twice; {having[0].path} has it already")
    for stanza in ours:
        weight = stanza.get("weight")
        if stanza.get("prioritizeVerb") and not (type(weight) is int and weight > 0):
            yield FieldProblem(
                stanza.at("weight"), f"expected a whole number above 0 beside prioritizeVerb, got {shown(weight)}"
            )


def _fields(stanza: _Stanza, *, client_certificate: bool) -> Iterator[FieldProblem]:
    if not stanza.url.startswith(("http://", "https://")):
        yield FieldProblem(
            stanza.at("urlPrefix"), f"expected the URL of the service, got {shown(stanza.get('urlPrefix'))}"
        )
    if stanza.get("ignorable"):
        yield FieldProblem(
            stanza.at("ignorable"), "expected false: while the service is away, pods would be placed without devices"
        )
    if stanza.get("nodeCacheCapable") is not True:
        yield FieldProblem(
            stanza.at("nodeCacheCapable"),
            f"expected true, got {shown(stanza.get('nodeCacheCapable'))}: every call would carry all Node objects",
        )
    if stanza.get("managedResources"):
        yield FieldProblem(
            stanza.at("managedResources"), "expected an empty list: pods that have only claims would not be sent here"
        )
    for name in sorted(set(map(str, stanza.fields)) - _FIELDS):
        yield FieldProblem(stanza.at(name), "is no field of an extender; kube-scheduler refuses the file")
    yield from _encryption(stanza)
    if client_certificate:
        yield from _client_certificate(stanza)


def _encryption(stanza: _Stanza) -> Iterator[FieldProblem]:
    secure, enabled = stanza.url.startswith("https://"), bool(stanza.get("enableHTTPS"))
    if secure is not enabled and stanza.url:
        yield FieldProblem(
            stanza.at("enableHTTPS"), f"expected {str(secure).lower()}, because urlPrefix is {stanza.url}"
        )
    if not enabled:
        return
    if stanza.trust.get("insecure"):
        yield FieldProblem(
            stanza.at("tlsConfig.insecure"), "expected false: kube-scheduler would believe whoever answers in its place"
        )
    elif not (stanza.trust.get("caFile") or stanza.trust.get("caData")):
        yield FieldProblem(
            stanza.at("tlsConfig"),
            "expected caFile or caData: without them kube-scheduler believes any certificate, without a word",
        )


def _client_certificate(stanza: _Stanza) -> Iterator[FieldProblem]:
    if not stanza.url.startswith("https://"):
        yield FieldProblem(
            stanza.at("urlPrefix"),
            f"expected https, got {stanza.url}: the service serves the verbs only over TLS (setting tls.client_ca_file)",
        )
        return
    for name in ("cert", "key"):
        if not (stanza.trust.get(f"{name}File") or stanza.trust.get(f"{name}Data")):
            yield FieldProblem(
                stanza.at("tlsConfig"),
                f"expected {name}File or {name}Data: the service answers only callers with a certificate (setting "
                "tls.client_ca_file)",
            )


def _agreement(ours: Sequence[_Stanza]) -> Iterator[FieldProblem]:
    first, *further = ours
    for stanza in further:
        for name in _SHARED:
            if (first.get(name) or None) != (stanza.get(name) or None):
                yield FieldProblem(
                    stanza.at(name),
                    f"expected the same as in {first.path} ({shown(first.get(name))}), got {shown(stanza.get(name))}: an "
                    "instance that does not answer filter knows nothing of what was held",
                )


def _times(stanza: _Stanza, binds: bool, settings: SchedulingSettings) -> Iterator[FieldProblem]:
    try:
        seconds = _seconds(stanza.get("httpTimeout"))
    except ValueError as problem:
        yield FieldProblem(stanza.at("httpTimeout"), str(problem))
        return
    timeout = settings.binding_timeout_seconds
    needed = bind_http_seconds(timeout)
    if binds and needed - seconds > _ROUNDING:
        yield FieldProblem(
            stanza.at("httpTimeout"),
            f"expected at least {needed:g}s, got {seconds:g}s: a bind waits up to {timeout:g} s for devices "
            f"(setting scheduling.binding_timeout_seconds) and needs up to {BIND_MARGIN_SECONDS:g} s for all else",
        )
    if not binds and stanza.chooses and seconds <= settings.filter_budget_seconds:
        yield FieldProblem(
            stanza.at("httpTimeout"),
            f"expected more than {settings.filter_budget_seconds:g}s, for which a filter call may search (setting "
            f"scheduling.filter_budget_seconds), got {seconds:g}s",
        )
    if binds and stanza.chooses:
        yield FieldProblem(
            stanza.at("bindVerb"),
            f"expected in a stanza of its own: a filter call that hangs would stop the scheduling loop for {seconds:g} s "
            f"instead of {FILTER_HTTP_SECONDS:g} s",
        )


def _seconds(duration: object) -> float:
    if duration is None:
        return _DEFAULT_HTTP_SECONDS
    if not isinstance(duration, str):
        raise ValueError(f"expected a duration with its unit, such as {duration}s, got the number {duration}")  # noqa: TRY004 - it is the user's value
    return parse_go_duration(duration) / SECOND or _DEFAULT_HTTP_SECONDS
