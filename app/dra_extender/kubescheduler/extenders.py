"""The `extenders` of a KubeSchedulerConfiguration: two stanzas for one service, each with its own time limit."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dra_extender.config.scheduling_settings import BIND_MARGIN_SECONDS, FILTER_HTTP_SECONDS, bind_http_seconds
from dra_extender.kubescheduler.render import VERBS
from dra_extender.manifests.problems import FieldProblem, shown
from dra_extender.model.go_duration import SECOND, parse_go_duration

_CHOOSING: Final = ("filterVerb", "prioritizeVerb", "preemptVerb")
_SHARED: Final = ("urlPrefix", "enableHTTPS", "tlsConfig")
_ROUNDING: Final = 1e-6
_DEFAULT_HTTP_SECONDS: Final = 5.0
_KNOWN: Final = frozenset(
    {*VERBS, *_SHARED, "weight", "httpTimeout", "nodeCacheCapable", "managedResources", "ignorable"}
)


class _Stanza(NamedTuple):
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
        """Whether it has a verb that chooses nodes."""
        return any(self.get(verb) for verb in _CHOOSING)


def check_stanzas(
    given: object, binding_timeout: float, filter_budget: float, *, client_certificate: bool = False
) -> list[FieldProblem]:
    """What is wrong with the stanzas of this service; those of other extenders are ignored.  Times in seconds.

    `client_certificate`: the service answers callers with a certificate alone.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or not given:
        return [
            FieldProblem("extenders", "expected two stanzas for this service, one of them with bindVerb; there is none")
        ]
    stanzas = [_Stanza(f"extenders[{index}]", each) for index, each in enumerate(given) if isinstance(each, Mapping)]
    binding = [each for each in stanzas if each.get("bindVerb")]
    if len(stanzas) < len(given) or len(binding) != 1:
        return [
            FieldProblem("extenders", f"expected mappings, exactly one of them with bindVerb; {len(binding)} have it")
        ]
    ours = _of_this_service(stanzas, binding[0])
    return [
        *_verbs(ours),
        *(problem for each in ours for problem in _common(each, client_certificate=client_certificate)),
        *_agreement(ours),
        *_times(ours, binding[0], binding_timeout, filter_budget),
    ]


def _of_this_service(stanzas: Sequence[_Stanza], binding: _Stanza) -> list[_Stanza]:
    """The stanza with bindVerb and those with the same URL; without such ones, every stanza that chooses nodes."""
    same = [each for each in stanzas if each is binding or each.url == binding.url]
    if len(same) > 1 or binding.chooses:
        return same
    return [each for each in stanzas if each is binding or each.chooses]


def _verbs(ours: Sequence[_Stanza]) -> Iterator[FieldProblem]:
    for verb, wanted in VERBS.items():
        yield from _verb(verb, wanted, [each for each in ours if each.get(verb)])
    for each in ours:
        weight = each.get("weight")
        if each.get("prioritizeVerb") and not (type(weight) is int and weight > 0):
            yield FieldProblem(
                each.at("weight"), f"expected a whole number above 0 beside prioritizeVerb, got {shown(weight)}"
            )


def _verb(verb: str, wanted: str, having: Sequence[_Stanza]) -> Iterator[FieldProblem]:
    if not having:
        yield FieldProblem(f"extenders[].{verb}", f"expected {wanted} in one stanza of this service; it is in none")
    for each in having:
        if each.get(verb) != wanted:
            yield FieldProblem(each.at(verb), f"expected {wanted}, got {shown(each.get(verb))}")
    if len(having) > 1:
        yield FieldProblem(having[1].at(verb), f"{wanted} would be called twice; {having[0].path} has it already")


def _common(stanza: _Stanza, *, client_certificate: bool) -> Iterator[FieldProblem]:
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
            stanza.at("managedResources"), "expected an empty list: pods that have claims alone would not be sent here"
        )
    for name in sorted(set(map(str, stanza.fields)) - _KNOWN):
        yield FieldProblem(stanza.at(name), "is no field of an extender; kube-scheduler refuses the file")
    yield from _encryption(stanza)
    if client_certificate:
        yield from _client_certificate(stanza)


def _encryption(stanza: _Stanza) -> Iterator[FieldProblem]:
    secure, wanted = stanza.url.startswith("https://"), bool(stanza.get("enableHTTPS"))
    if secure is not wanted and stanza.url:
        yield FieldProblem(
            stanza.at("enableHTTPS"), f"expected {str(secure).lower()}, because urlPrefix is {stanza.url}"
        )
    trust = _trust(stanza)
    if not wanted:
        return
    if trust.get("insecure"):
        yield FieldProblem(
            stanza.at("tlsConfig.insecure"), "expected false: kube-scheduler would believe whoever answers in its place"
        )
    elif not (trust.get("caFile") or trust.get("caData")):
        yield FieldProblem(
            stanza.at("tlsConfig"),
            "expected caFile or caData: without them kube-scheduler believes any certificate, without a word",
        )


def _client_certificate(stanza: _Stanza) -> Iterator[FieldProblem]:
    if not stanza.url.startswith("https://"):
        yield FieldProblem(
            stanza.at("urlPrefix"),
            f"expected https, got {stanza.url}: the service serves the verbs over TLS alone (setting tls.client_ca_file)",
        )
        return
    trust = _trust(stanza)
    for name in ("cert", "key"):
        if not (trust.get(f"{name}File") or trust.get(f"{name}Data")):
            yield FieldProblem(
                stanza.at("tlsConfig"),
                f"expected {name}File or {name}Data: the service answers callers with a certificate alone (setting "
                "tls.client_ca_file)",
            )


def _trust(stanza: _Stanza) -> Mapping[str, Any]:
    trust = stanza.get("tlsConfig")
    return trust if isinstance(trust, Mapping) else {}


def _agreement(ours: Sequence[_Stanza]) -> Iterator[FieldProblem]:
    first, *rest = ours
    for other in rest:
        for name in _SHARED:
            if (first.get(name) or None) != (other.get(name) or None):
                yield FieldProblem(
                    other.at(name),
                    f"expected the same as in {first.path} ({shown(first.get(name))}), got {shown(other.get(name))}: an "
                    "instance that does not answer filter knows nothing of what was held",
                )


def _times(
    ours: Sequence[_Stanza], binding: _Stanza, binding_timeout: float, filter_budget: float
) -> Iterator[FieldProblem]:
    for each in ours:
        try:
            seconds = _seconds(each.get("httpTimeout"))
        except ValueError as problem:
            yield FieldProblem(each.at("httpTimeout"), str(problem))
            continue
        needed = bind_http_seconds(binding_timeout)
        if each is binding and needed - seconds > _ROUNDING:
            yield FieldProblem(
                each.at("httpTimeout"),
                f"expected at least {needed:g}s, got {seconds:g}s: a bind waits up to {binding_timeout:g} s for devices (setting "
                f"scheduling.binding_timeout_seconds) and needs up to {BIND_MARGIN_SECONDS:g} s for all else",
            )
        if each is not binding and each.chooses and seconds <= filter_budget:
            yield FieldProblem(
                each.at("httpTimeout"),
                f"expected more than {filter_budget:g}s, for which a filter call may search (setting "
                f"scheduling.filter_budget_seconds), got {seconds:g}s",
            )
        if each is binding and each.chooses:
            yield FieldProblem(
                each.at("bindVerb"),
                f"expected in a stanza of its own: a filter call that hangs would stop the scheduling loop for {seconds:g} s "
                f"instead of {FILTER_HTTP_SECONDS:g} s",
            )


def _seconds(given: object) -> float:
    if given is None:
        return _DEFAULT_HTTP_SECONDS
    if not isinstance(given, str):
        raise ValueError(f"expected a duration with its unit, such as {given}s, got the number {given}")  # noqa: TRY004 - it is the user's value
    return parse_go_duration(given) / SECOND or _DEFAULT_HTTP_SECONDS
