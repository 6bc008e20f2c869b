"""A kube-scheduler configuration that contradicts the service is refused, each time with a sentence that names the field."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from dra_extender.config.scheduler_checks import check
from dra_extender.config.scheduler_configuration import SchedulerSetup, read_configuration, render
from dra_extender.config.scheduling_settings import SchedulingSettings
from dra_extender.config.service_settings import LeaderElectionSettings, ServerSettings, TlsSettings
from dra_extender.config.settings import InvalidSettingsError, Settings, load_settings
from dra_extender.service.wiring import serve
from hypothesis import given
from hypothesis import strategies as st

SHIPPED = Path(__file__).parents[2] / "deploy" / "base" / "scheduler-config" / "kube-scheduler.yaml"
Change = Callable[[dict[str, Any]], object]


def said(change: Change, settings: Settings | None = None) -> list[str]:
    """What is said of the usual document after a change."""
    document = render(SchedulerSetup())
    change(document)
    return [str(each) for each in check(document, settings or Settings())]


def waiting(binding_timeout: float) -> Settings:
    return Settings(scheduling=SchedulingSettings(binding_timeout_seconds=binding_timeout))


def following(lease: str, namespace: str | None = None) -> Settings:
    return Settings(leader_election=LeaderElectionSettings(enabled=True, follow_lease=lease, namespace=namespace))


def multi_point(document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = document["profiles"][0]["plugins"]["multiPoint"]
    return found


def stanza(index: int, **fields: Any) -> Change:
    """Set fields of a stanza; None removes one."""

    def change(document: dict[str, Any]) -> None:
        for name, value in fields.items():
            document["extenders"][index].pop(name, None)
            if value is not None:
                document["extenders"][index][name] = value

    return change


def test_what_is_rendered_is_what_is_shipped() -> None:
    assert render(SchedulerSetup()) == yaml.safe_load(SHIPPED.read_text())


@given(
    st.floats(1, 86400),
    st.sampled_from(["http://127.0.0.1:8080", "http://extender.ns.svc:80", "https://extender.example.com"]),
    st.sampled_from(["dra-extender-scheduler", "default-scheduler", "gpu"]),
)
def test_whatever_is_rendered_passes_its_own_check(timeout: float, url: str, name: str) -> None:
    setup = SchedulerSetup(url=url, scheduler_name=name, binding_timeout=round(timeout, 3), authority="/ca.crt")
    assert check(render(setup), waiting(round(timeout, 3))) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: d.update(apiVersion="kubescheduler.config.k8s.io/v1beta3"),
            "apiVersion: expected kubescheduler.config.k8s.io/v1, got",
        ),
        (lambda d: d.update(kind="Policy"), "kind: expected KubeSchedulerConfiguration, got 'Policy'"),
        (lambda d: d.pop("profiles"), "profiles: expected at least one, with plugin DynamicResources switched off"),
        (
            lambda d: d["profiles"][0].pop("plugins"),
            "profiles[0].plugins.multiPoint.disabled: expected DynamicResources here",
        ),
        (
            lambda d: multi_point(d).update(disabled=[{"name": "DynamicResource"}]),
            "profiles[0].plugins.multiPoint.disabled: 'DynamicResource' is no plugin, which kube-scheduler does not say",
        ),
        (
            lambda d: d["profiles"][0].update(plugins={"filter": {"disabled": [{"name": "DynamicResources"}]}}),
            "DynamicResources is off only at filter, and works on at the other points",
        ),
        (
            lambda d: d["profiles"][0]["plugins"].update(reserve={"enabled": [{"name": "DynamicResources"}]}),
            "profiles[0].plugins.reserve.enabled: DynamicResources is switched on",
        ),
        (
            lambda d: d["profiles"].append({"schedulerName": "second"}),
            "profiles[1].plugins.multiPoint.disabled: expected",
        ),
        (lambda d: d["profiles"].append("second"), "profiles[1]: expected a mapping, got str"),
        (lambda d: d.pop("percentageOfNodesToScore"), "percentageOfNodesToScore: expected 100, got nothing"),
        (lambda d: d.update(percentageOfNodesToScore=50), "percentageOfNodesToScore: expected 100, got 50"),
        (
            lambda d: d["profiles"][0].update(percentageOfNodesToScore=10),
            "profiles[0].percentageOfNodesToScore: expected 100, got 10",
        ),
        (lambda d: d.pop("leaderElection"), "leaderElection.resourceName: expected a name of its own"),
        (lambda d: d.pop("extenders"), "extenders: expected two stanzas for this service"),
        (lambda d: d["extenders"].pop(1), "extenders: expected mappings, exactly one of them with bindVerb; 0 have it"),
        (lambda d: d["extenders"].append("x"), "extenders: expected mappings"),
        (
            lambda d: d["extenders"].pop(0),
            "extenders[].filterVerb: expected filter in one stanza of this service; it is in none",
        ),
        (stanza(0, preemptVerb=None), "extenders[].preemptVerb: expected preempt in one stanza"),
        (stanza(0, filterVerb="predicates"), "extenders[0].filterVerb: expected filter, got 'predicates'"),
        (
            stanza(1, filterVerb="filter"),
            "extenders[1].filterVerb: filter would be called twice; extenders[0] has it already",
        ),
        (
            stanza(0, weight=None),
            "extenders[0].weight: expected a whole number above 0 beside prioritizeVerb, got nothing",
        ),
        (stanza(0, weight=0), "extenders[0].weight: expected a whole number above 0 beside prioritizeVerb, got 0"),
        (stanza(0, urlPrefix=None), "extenders[0].urlPrefix: expected the URL of the service, got nothing"),
        (stanza(0, ignorable=True), "extenders[0].ignorable: expected false: while the service is away"),
        (stanza(1, ignorable=True), "extenders[1].ignorable: expected false"),
        (stanza(0, nodeCacheCapable=False), "extenders[0].nodeCacheCapable: expected true, got false"),
        (stanza(1, nodeCacheCapable=None), "extenders[1].nodeCacheCapable: expected true, got nothing"),
        (
            stanza(0, managedResources=[{"name": "example.com/gpu"}]),
            "extenders[0].managedResources: expected an empty list",
        ),
        (stanza(0, httpTimeOut="5s"), "extenders[0].httpTimeOut: is no field of an extender"),
        (stanza(1, httpTimeout="600s"), "extenders[1].httpTimeout: expected at least 660s, got 600s"),
        (stanza(1, httpTimeout=None), "extenders[1].httpTimeout: expected at least 660s, got 5s"),
        (stanza(1, httpTimeout=700), "extenders[1].httpTimeout: expected a duration with its unit, such as 700s"),
        (stanza(1, httpTimeout="11 minutes"), "extenders[1].httpTimeout: expected a duration such as 5s or 11m0s"),
        (stanza(0, httpTimeout="4s"), "extenders[0].httpTimeout: expected more than 4s"),
        (stanza(1, urlPrefix="http://127.0.0.1:8081"), "extenders[1].urlPrefix: expected the same as in extenders[0]"),
        (
            stanza(0, enableHTTPS=True),
            "extenders[0].enableHTTPS: expected false, because urlPrefix is http://127.0.0.1:8080",
        ),
    ],
)
def test_every_contradiction_is_named(change: Change, words: str) -> None:
    assert any(words in each for each in said(change)), said(change)


def test_one_stanza_for_everything_is_refused_because_of_its_long_time_limit() -> None:
    document = render(SchedulerSetup())
    first, second = document["extenders"]
    document["extenders"] = [{**first, **second}]
    (problem,) = check(document, Settings())
    assert str(problem).startswith(
        "extenders[0].bindVerb: expected in a stanza of its own: a filter call that hangs would stop"
    )


def test_encryption_needs_an_authority_and_is_the_same_in_both_stanzas() -> None:
    def encrypted(document: dict[str, Any], **trust: str) -> None:
        for each in document["extenders"]:
            each.update(urlPrefix="https://extender.example.com", enableHTTPS=True, tlsConfig=dict(trust))

    assert said(lambda document: encrypted(document, caFile="/ca.crt")) == []
    assert "extenders[0].tlsConfig: expected caFile or caData" in said(encrypted)[0]

    def halved(document: dict[str, Any]) -> None:
        encrypted(document, caFile="/ca.crt")
        document["extenders"][1]["tlsConfig"] = {"caFile": "/other.crt"}

    assert "extenders[1].tlsConfig: expected the same as in extenders[0]" in said(halved)[0]


def test_a_service_that_follows_a_lease_needs_a_scheduler_that_holds_it() -> None:
    follows = following("dra-extender-scheduler")
    assert said(lambda document: document, follows) == []
    (problem,) = said(lambda document: document["leaderElection"].update(leaderElect=False), follows)
    assert problem.startswith(
        "leaderElection.leaderElect: expected true: the service leads where Lease dra-extender-scheduler"
    )
    (problem,) = said(lambda document: document["leaderElection"].update(resourceName="other"), follows)
    assert "expected dra-extender-scheduler (setting leader_election.follow_lease), got 'other'" in problem


def test_the_lease_is_in_the_namespace_of_the_service() -> None:
    """kustomize's `namespace:` moves the service, and leaves the file as it is."""
    moved = following("dra-extender-scheduler", "gpus")
    (problem,) = said(lambda document: document, moved)
    assert problem.startswith(
        "leaderElection.resourceNamespace: expected gpus, the namespace of the service, got 'dra-extender'"
    )
    assert said(lambda document: document["leaderElection"].update(resourceNamespace="gpus"), moved) == []


def test_other_extenders_beside_this_service_are_left_alone() -> None:
    foreign = {"urlPrefix": "http://other:80", "filterVerb": "look", "ignorable": True, "httpTimeout": "30s"}
    assert said(lambda document: document["extenders"].append(foreign)) == []


def test_the_binding_timeout_of_the_settings_counts() -> None:
    def nothing(document: dict[str, Any]) -> None:
        """Leave it as it is."""

    assert said(nothing, waiting(600)) == []
    assert "expected at least 661s, got 660s" in said(nothing, waiting(601))[0]
    assert said(stanza(1, httpTimeout="11m1s"), waiting(601)) == []


@pytest.mark.parametrize("document", [None, [], "text", 7])
def test_a_document_of_another_kind_is_said(document: object) -> None:
    (problem,) = check(document, Settings())
    assert str(problem).startswith("document: expected a KubeSchedulerConfiguration, got ")


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
    max_leaves=6,
)
FIELDS = ("profiles", "extenders", "leaderElection", "percentageOfNodesToScore")


@given(
    st.sampled_from(FIELDS), ODD, st.sampled_from(["plugins", "urlPrefix", "httpTimeout", "tlsConfig", "bindVerb"]), ODD
)
def test_no_document_however_odd_breaks_the_check(field: str, value: Any, inner: str, odd: Any) -> None:
    document = render(SchedulerSetup())
    document["extenders"][1][inner] = odd
    document["profiles"][0][inner] = odd
    check(copy.deepcopy(document), Settings())
    document[field] = value
    check(document, Settings())


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: b: c", "expected YAML"), ("", "found 0 in 0 documents"), ("a: 1\n---\nb: 2", "found 0 in 2")],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(text)
    with pytest.raises(InvalidSettingsError, match=words) as refused:
        read_configuration(file)
    assert str(file) in str(refused.value)


async def test_the_service_does_not_start_beside_a_scheduler_whose_bind_gives_up_first() -> None:
    scheduling = SchedulingSettings(binding_timeout_seconds=601, scheduler_config=SHIPPED)
    with pytest.raises(
        InvalidSettingsError, match=r"kube-scheduler.yaml: extenders\[1\].httpTimeout: expected at least 661s, got 660s"
    ):
        await serve(Settings(server=ServerSettings(host="127.0.0.1", port=0), scheduling=scheduling))


def test_waits_of_a_bind_that_would_outlast_its_margin_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRA_EXTENDER_SCHEDULING__WATCH_LAG_SECONDS", "20")
    with pytest.raises(
        InvalidSettingsError,
        match=r"setting scheduling .*may be 45 s together, not 50: bind's httpTimeout is 60 s longer",
    ):
        load_settings()


def over_tls(document: dict[str, Any], **trust: Any) -> None:
    for each in document["extenders"]:
        each.update(urlPrefix="https://extender.example.com", enableHTTPS=True, tlsConfig=dict(trust))


def test_a_service_that_wants_certificates_of_its_callers_is_called_with_one() -> None:
    tls = TlsSettings(cert_file=Path("/c"), private_key_file=Path("/k"), client_ca_file=Path("/ca"))
    settings = Settings(tls=tls)
    assert "extenders[0].urlPrefix: expected https, got http://127.0.0.1:8080" in said(lambda _: None, settings)[0]
    without = said(lambda document: over_tls(document, caFile="/ca.crt"), settings)
    assert "extenders[0].tlsConfig: expected certFile or certData" in without[0]
    assert "extenders[0].tlsConfig: expected keyFile or keyData" in without[1]
    assert said(lambda document: over_tls(document, caFile="/ca", certFile="/c", keyFile="/k"), settings) == []
    setup = SchedulerSetup("https://extender.ns.svc", authority="/ca", client_certificate=("/c", "/k"))
    assert check(render(setup), settings) == []


def test_a_scheduler_that_would_believe_any_certificate_is_refused() -> None:
    insecure = said(lambda document: over_tls(document, insecure=True))
    assert "extenders[0].tlsConfig.insecure: expected false" in insecure[0]
    assert "expected caFile or caData: without them" in said(over_tls)[0]

    def without_scheme(document: dict[str, Any]) -> None:
        for each in document["extenders"]:
            each["enableHTTPS"] = True

    assert any("expected caFile or caData" in each for each in said(without_scheme))
