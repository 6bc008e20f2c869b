"""Pods that would get their devices, and that something else may keep, are marked with what was not looked at."""

from typing import Any

import pytest
from dra_extender.inspection.text.what_if import table
from dra_extender.inspection.what_if.changes import Changes, WrittenObject
from dra_extender.inspection.what_if.report import OutcomeKind, PodOutcome, WhatIfReport
from dra_extender.inspection.what_if.what_if import what_if
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.controlplane.objects import device, device_class, pod, request, resource_claim_template
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "a"}}}
REQUIRED = {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}
PREFERRED = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": TERM}]}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}


def outcome(report: WhatIfReport, name: str = "train") -> PodOutcome:
    return next(each.after for each in report.pods if each.pod == f"{NAMESPACE}/{name}")


@pytest.mark.parametrize(
    ("fields", "mark"),
    [
        pytest.param(
            {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]},
            "PersistentVolumeClaim data",
            id="volume",
        ),
        pytest.param(
            {"volumes": [{"name": "tmp", "ephemeral": {"volumeClaimTemplate": {}}}]},
            "PersistentVolumeClaim of volume tmp",
            id="ephemeral-volume",
        ),
        pytest.param({"affinity": {"podAffinity": REQUIRED}}, "affinity to other pods", id="affinity"),
        pytest.param({"affinity": {"podAntiAffinity": REQUIRED}}, "affinity to other pods", id="anti-affinity"),
        pytest.param({"topologySpreadConstraints": [SPREAD]}, "topology spread constraints", id="spread"),
    ],
)
async def test_what_no_trial_judges_is_marked(made: MadeCluster, fields: dict[str, Any], mark: str) -> None:
    made.pod("train", request("gpu", "gpu"), **fields)

    report = await what_if(made.cluster())

    assert (outcome(report).kind, outcome(report).unjudged) == (OutcomeKind.LANDS, (mark,))
    text = " ".join(table(report).split())
    assert "next 1 pod lands (1 as far as devices go) and 0 wait" in text
    assert "may land on n2 (gpu-0)" in text
    assert f"ml/train lands as far as devices go; not looked at: {mark}" in text


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"volumes": [{"name": "tmp", "emptyDir": {}}]}, id="volume-of-the-node"),
        pytest.param({"affinity": {"podAffinity": PREFERRED}}, id="preference"),
        pytest.param(
            {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway"}]}, id="soft-spread"
        ),
    ],
)
async def test_what_keeps_no_pod_is_not_marked(made: MadeCluster, fields: dict[str, Any]) -> None:
    made.pod("train", request("gpu", "gpu"), **fields)
    report = await what_if(made.cluster())
    assert outcome(report).unjudged == ()
    assert " lands on n2 (gpu-0)" in table(report)


async def test_scheduler_that_has_never_acted_is_marked_for_every_pod_that_names_it(made: MadeCluster) -> None:
    """The pods that the trial itself places are no trace."""
    made.gpus("n1", device("gpu-1"), driver="other.example.com")
    made.add(device_class("other", 'device.driver == "other.example.com"'))
    for name, wanted in (("train", "gpu"), ("train-2", "other")):
        made.pod(name, request("gpu", wanted), scheduler="misspelt")
        made.objects["pods"][-1]["status"] = {}
    report = await what_if(made.cluster())
    for name in ("train", "train-2"):
        (mark,) = outcome(report, name).unjudged
        assert mark.startswith("no scheduler named misspelt has acted on any pod of this cluster")


@pytest.mark.parametrize("place", ["condition", "event"])
async def test_what_kube_scheduler_reports_beside_devices_is_marked(made: MadeCluster, place: str) -> None:
    made.pod("train", request("gpu", "gpu"))
    message = '0/2 nodes are available: persistentvolumeclaim "data" not found.'
    if place == "condition":
        made.objects["pods"][-1]["status"]["conditions"][0]["message"] = message
    else:
        uid, made.objects["pods"][-1]["status"] = made.objects["pods"][-1]["metadata"]["uid"], {}
        made.add(
            {
                "kind": "Event",
                "metadata": {"name": "e", "namespace": NAMESPACE},
                "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": uid},
                "reason": "FailedScheduling",
                "message": message,
                "source": {"component": "dra-extender-scheduler"},
            }
        )
    (mark,) = outcome(await what_if(made.cluster())).unjudged
    assert mark == 'kube-scheduler reports: persistentvolumeclaim "data" not found'


async def test_claim_that_the_cluster_does_not_create_is_marked_with_its_event(made: MadeCluster) -> None:
    made.add(resource_claim_template("wanted", NAMESPACE, request("gpu", "gpu")))
    made.add(pod("train", NAMESPACE, templates={"gpu": "wanted"}))
    uid = made.objects["pods"][-1]["metadata"]["uid"]
    made.add(
        {
            "kind": "Event",
            "metadata": {"name": "e", "namespace": NAMESPACE},
            "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": uid},
            "reason": "FailedResourceClaimCreation",
            "message": "exceeded quota: gpus",
        }
    )
    assert outcome(await what_if(made.cluster())).unjudged == (
        "Event FailedResourceClaimCreation: exceeded quota: gpus",
    )


async def test_quotas_are_marked_for_pods_that_are_not_there_yet(made: MadeCluster) -> None:
    made.add(resource_claim_template("wanted", NAMESPACE, request("gpu", "gpu")))
    new = pod("train", NAMESPACE, templates={"gpu": "wanted"})
    report = await what_if(made.cluster(), Changes(objects=[WrittenObject(StoredKind.POD, new, "new.yaml:1")]))
    assert outcome(report).unjudged == ("ResourceQuotas",)
    filled = await what_if(made.cluster(), None, (NAMESPACE, "wanted"))
    assert filled.fill is not None
    assert (filled.fill.copies, filled.fill.unjudged) == (1, ("ResourceQuotas",))
    assert "as far as devices go; not looked at: ResourceQuotas" in " ".join(table(filled).split())


async def test_port_of_the_host_that_another_pod_has_keeps_a_pod(made: MadeCluster) -> None:
    ports = [{"containerPort": 80, "hostPort": 8080}]
    made.add(pod("server", NAMESPACE))
    made.objects["pods"][-1]["spec"] |= {"nodeName": "n2"}
    made.pod("train", request("gpu", "gpu"))
    for each in made.objects["pods"][-2:]:
        each["spec"]["containers"][0]["ports"] = ports
    found = outcome(await what_if(made.cluster()))
    assert found.kind is OutcomeKind.WAITS
    assert "node(s) didn't have free ports for the requested pod ports: 8080/TCP" in [
        each.text for each in found.reasons
    ]
