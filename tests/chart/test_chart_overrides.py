"""What people may override, and what stays as the chart has it when they do."""

import asyncio
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from tests.chart.programs import Helm, KubeScheduler, Object, documents, run
from tests.chart.selecting import containers, environment, of_kind, only, pod_spec, scheduler_configuration
from tests.chart.value_sets import VALUE_SETS
from tests.support.side_by_side import side_by_side

pytestmark = pytest.mark.chart

MONITORS = ("--api-versions", "monitoring.coreos.com/v1")


async def test_helm_3_renders_what_helm_4_renders(helm: Helm, helm3: Helm) -> None:
    async def rendered_alike(values: Object) -> None:
        renderings = [asyncio.to_thread(program.template, *MONITORS, values=values) for program in (helm, helm3)]
        ours, theirs = await asyncio.gather(*renderings)
        assert ours == theirs

    await side_by_side({name: rendered_alike(values) for name, values in VALUE_SETS.items()})


@pytest.mark.parametrize("name", ["pod-monitor-of-both", "outside", "authorized-metrics"])
def test_two_renderings_are_equal(helm: Helm, name: str) -> None:
    """No template makes up a secret or looks at the clock: GitOps tools compare renderings."""
    policy: Object = {"rules": [{"name": "a", "bindsToNode": True}]}
    values = VALUE_SETS[name] | {"policy": policy}
    first, second = (helm.run("template", *MONITORS, values=values) for _ in range(2))
    assert first.code == 0, first.words
    assert first.output == second.output


def test_names_that_look_like_numbers_stay_texts(helm: Helm) -> None:
    values: Object = {"serviceAccount": {"name": "123"}, "scheduler": {"name": "1e3"}}
    objects = helm.template("--namespace", "456", values=values)
    assert {each["metadata"]["namespace"] for each in objects if "namespace" in each["metadata"]} == {
        "456",
        "kube-system",
    }
    assert pod_spec(objects)["serviceAccountName"] == "123"
    configuration = scheduler_configuration(objects)
    assert configuration["profiles"][0]["schedulerName"] == "1e3"


def test_on_openshift_the_pod_leaves_its_users_to_the_namespace(helm: Helm) -> None:
    """The rest of the restricted standard stays."""
    objects = helm.template(values={"podSecurityContext": {"runAsUser": None, "runAsGroup": None, "fsGroup": None}})
    assert pod_spec(objects)["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}


def test_security_contexts_are_merged_with_what_is_given(helm: Helm) -> None:
    values: Object = {
        "podSecurityContext": {"runAsUser": 1000680000},
        "extender": {"securityContext": {"runAsGroup": 7}},
        "scheduler": {"securityContext": {"capabilities": {"drop": ["NET_RAW"]}}},
    }
    objects = helm.template(values=values)
    assert pod_spec(objects)["securityContext"]["runAsUser"] == 1000680000
    found = {name: each["securityContext"] for name, each in containers(objects).items()}
    assert found["extender"]["runAsGroup"] == 7
    assert found["extender"]["readOnlyRootFilesystem"] is True
    assert found["kube-scheduler"]["capabilities"] == {"drop": ["NET_RAW"]}


def test_recreating_takes_the_limits_of_rolling_away(helm: Helm) -> None:
    """The API server refuses them beside each other."""
    assert only(helm.template(values={"strategy": {"type": "Recreate"}}), "Deployment")["spec"]["strategy"] == {
        "type": "Recreate"
    }


def test_a_constraint_without_selector_spreads_the_pods_of_the_release(helm: Helm) -> None:
    own = {"matchLabels": {"app": "x"}}
    given = [
        {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"},
        {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": own},
    ]
    objects = helm.template(values={"topologySpreadConstraints": given})
    first, second = pod_spec(objects)["topologySpreadConstraints"]
    assert first["labelSelector"] == only(objects, "Deployment")["spec"]["selector"]
    assert second["labelSelector"] == own
    assert "topologySpreadConstraints" not in pod_spec(helm.template(values={"topologySpreadConstraints": []}))


def test_environment_of_ones_own_comes_after_the_settings(helm: Helm) -> None:
    settings: Object = {"scheduling": {"scheduler_names": ["a", "b"], "selector_cache_bytes": 268435456}}
    extra = {"name": "HTTPS_PROXY", "value": "http://proxy.example.com"}
    given = environment(helm.template(values={"extender": {"settings": settings, "extraEnv": [extra]}}))
    assert list(given.items())[-1] == (extra["name"], extra["value"])
    assert given["DRA_EXTENDER_SCHEDULING__SCHEDULER_NAMES"] == '["a","b"]'
    assert given["DRA_EXTENDER_SCHEDULING__SELECTOR_CACHE_BYTES"] == "268435456"


def test_weights_of_plugins_reach_kube_scheduler_and_leave_the_other_scores(
    helm: Helm, kube_scheduler: KubeScheduler
) -> None:
    rendered = helm.template(values={"scheduler": {"pluginWeights": {"NodeResourcesFit": 7}}})
    configuration = scheduler_configuration(rendered)
    (profile,) = kube_scheduler.complete(configuration)["profiles"]
    weights = {each["name"]: each.get("weight") for each in profile["plugins"]["multiPoint"]["enabled"]}
    assert (weights["NodeResourcesFit"], weights["TaintToleration"]) == (7, 3)
    assert "DynamicResources" not in weights


def test_an_account_that_exists_gets_the_rights_and_is_not_made(helm: Helm) -> None:
    objects = helm.template(values={"serviceAccount": {"create": False, "name": "gpus"}})
    assert of_kind(objects, "ServiceAccount") == []
    subjects = [each for kind in ("ClusterRoleBinding", "RoleBinding") for each in of_kind(objects, kind)]
    assert {subject["name"] for each in subjects for subject in each["subjects"]} == {"gpus"}


def test_pod_monitor_scrapes_every_replica_and_kube_scheduler_with_a_token(helm: Helm) -> None:
    values: Object = {"podMonitor": {"enabled": True, "schedulerTokenSecret": {"name": "scraper"}}}
    objects = helm.template(*MONITORS, values=values)
    spec = only(objects, "PodMonitor")["spec"]
    assert spec["selector"] == only(objects, "Deployment")["spec"]["selector"]
    ports = {port["name"] for each in containers(objects).values() for port in each["ports"]}
    _, scheduler = spec["podMetricsEndpoints"]
    assert {each["port"] for each in spec["podMetricsEndpoints"]} <= ports
    assert scheduler["scheme"] == "https"
    assert scheduler["authorization"]["credentials"] == {"name": "scraper", "key": "token"}
    let_in = {port["port"] for rule in only(objects, "NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]}
    assert {each["port"] for each in spec["podMetricsEndpoints"]} <= let_in


def test_without_a_token_the_metrics_of_kube_scheduler_stay_closed(helm: Helm) -> None:
    objects = helm.template(*MONITORS, values={"podMonitor": {"enabled": True}})
    (endpoint,) = only(objects, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] != "https-scheduler"
    assert "https-scheduler" not in str(only(objects, "NetworkPolicy"))


def test_egress_reaches_the_api_server_and_what_is_added(helm: Helm) -> None:
    there = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
    extra: list[Object] = [{"to": [{"podSelector": {}}]}]
    egress: Object = {"enabled": True, "apiServerTo": there, "apiServerPorts": [6443], "extra": extra}
    spec = only(helm.template(values={"networkPolicy": {"egress": egress}}), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert spec["egress"] == [{"to": there, "ports": [{"port": 6443, "protocol": "TCP"}]}, *extra]


def test_notes_say_how_to_verify_and_what_is_off(helm: Helm) -> None:
    notes = helm.notes()
    assert "helm test dra-extender" in notes
    assert "WARNING" not in notes
    warned = helm.notes({"podMonitor": {"enabled": True}, "networkPolicy": {"enabled": False}})
    assert warned.count("WARNING") == 2


def test_what_is_wanted_of_the_prometheus_operator_is_made_where_it_is_known_and_missed_in_the_notes(
    helm: Helm,
) -> None:
    """--api-versions names the version alone, or each kind, as Argo CD passes them."""
    unasked = helm.template(*MONITORS)
    for kind in ("ServiceMonitor", "PodMonitor", "PrometheusRule"):
        wish: Object = {f"{kind[0].lower()}{kind[1:]}": {"enabled": True, "labels": {"release": "prometheus"}}}
        for known in (MONITORS, ("--api-versions", f"monitoring.coreos.com/v1/{kind}")):
            made = only(helm.template(*known, values=wish), kind)
            assert made["metadata"]["labels"]["release"] == "prometheus"
        assert of_kind(unasked, kind) == of_kind(helm.template(values=wish), kind) == []
        other = ("--api-versions", "monitoring.coreos.com/v1/Prometheus")
        assert of_kind(helm.template(*other, values=wish), kind) == []
        assert f"does not know monitoring.coreos.com/v1/{kind} of the cluster" in helm.notes(wish)


class Ready(BaseHTTPRequestHandler):
    """A replica whose caches are complete."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/readyz?verbose&exclude=leader" else 503)
        self.end_headers()
        self.wfile.write(b"[+]caches ok")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_the_pod_of_helm_test_asks_a_replica_until_it_is_ready(helm: Helm) -> None:
    done = helm.run("template", "--show-only", "templates/test-ready.yaml", values={"fullnameOverride": "gpus"})
    objects = documents(done.output)
    pod, policy = only(objects, "Pod"), only(objects, "NetworkPolicy")
    assert {each["metadata"]["annotations"]["helm.sh/hook"] for each in (pod, policy)} == {"test"}
    (peer,) = policy["spec"]["ingress"][0]["from"]
    assert peer["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    service = only(helm.template(values={"fullnameOverride": "gpus"}), "Service")
    (container,) = pod["spec"]["containers"]
    script, url, _ = container["args"]
    host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
    assert host == f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert int(port) in {each["port"] for each in service["spec"]["ports"]}
    with HTTPServer(("127.0.0.1", 0), Ready) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        here = url.replace(f"{host}:{port}", f"127.0.0.1:{server.server_port}")
        ready = run(sys.executable, "-c", script, here, "1")
        other = run(sys.executable, "-c", script, here.replace("readyz", "livez"), "1")
        server.shutdown()
    assert (ready.code, ready.output) == (0, "[+]caches ok\n")
    assert (other.code, other.output.count("503")) == (1, 1)
    assert "no replica is ready" in other.words
