"""Workloads become the pods and PodGroups that their controllers make; the examples of KEP-5729 are played as they are written."""

import pytest
from dra_extender.simulator.demo.document import ManifestError
from dra_extender.simulator.demo.manifests import load_texts
from dra_extender.simulator.demo.results import ApplyEffect

from tests.support.simulator.playing import failures, play

pytestmark = pytest.mark.virtual_time
BASE = """apiVersion: v1
kind: Node
metadata: {name: node-1}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: s}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: s, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0}, {name: gpu-1}, {name: gpu-2}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}
---
"""
POD_SPEC = """
      schedulerName: dra-extender-scheduler
      containers: [{name: main, image: pause}]
      resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
"""


def workload(
    kind: str, version: str, fields: str, expect: str = "bound", annotations: str = "", spec: str = POD_SPEC
) -> str:
    return (
        f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: w, annotations: {{{annotations}}}}}\nspec:\n  {fields}\n"
        f'  template:\n    metadata: {{labels: {{app: w}}, annotations: {{dra-extender.io/expect: "{expect}"}}}}\n'
        f"    spec:{spec}---\n"
    )


APPS = "selector: {matchLabels: {app: w}}"


@pytest.mark.parametrize(
    ("kind", "version", "fields", "pods"),
    [
        ("Deployment", "apps/v1", f"{APPS}\n  replicas: 3", 3),
        ("Deployment", "apps/v1", APPS, 1),
        ("ReplicaSet", "apps/v1", f"{APPS}\n  replicas: 2", 2),
        ("StatefulSet", "apps/v1", f"{APPS}\n  serviceName: w\n  replicas: 2", 2),
        ("Job", "batch/v1", "parallelism: 3\n  completions: 2", 2),
        ("Job", "batch/v1", "parallelism: 2", 2),
        ("Job", "batch/v1", "backoffLimit: 1", 1),
        ("Job", "batch/v1", "parallelism: 2\n  suspend: true", 0),
        ("Deployment", "apps/v1", f"{APPS}\n  replicas: 0", 0),
    ],
)
async def test_workload_is_expanded_into_its_pods(kind: str, version: str, fields: str, pods: int) -> None:
    result = await play(BASE + workload(kind, version, fields))
    assert failures(result) == []
    assert [state.pod for state in result.pods] == [f"default/w-{index}" for index in range(pods)]
    assert {state.node for state in result.pods} <= {"node-1"}
    assert len({device.device for state in result.pods for use in state.claims for device in use.devices}) == pods


async def test_expectation_in_the_template_is_about_every_pod() -> None:
    result = await play(BASE + workload("Deployment", "apps/v1", f"{APPS}\n  replicas: 4"))
    assert failures(result) == [
        (
            "default/w-0 to -3 bound: w-3: it is waiting: 0/1 nodes are available: "
            '1 node(s): claim "gpu", request "gpu": matching devices are in use.'
        )
    ]


async def test_workload_is_scaled_replaced_and_deleted() -> None:
    """Fewer replicas free devices, another template replaces the pods, and with the workload all of them go."""
    three = workload("Deployment", "apps/v1", f"{APPS}\n  replicas: 3")
    one = workload("Deployment", "apps/v1", f"{APPS}\n  replicas: 1")
    changed = one.replace("name: main", "name: another")
    gone = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: w, annotations: {dra-extender.io/demo: delete}}\n"
    result = await play(BASE + three + one + one + changed + gone)
    assert failures(result) == []
    assert [step.effect for step in result.steps[-5:]] == [
        ApplyEffect.CREATED,
        ApplyEffect.UPDATED,
        ApplyEffect.UNCHANGED,
        ApplyEffect.UPDATED,
        ApplyEffect.DELETED,
    ]
    assert result.pods == ()


async def test_deleting_a_workload_that_does_not_exist_is_refused() -> None:
    gone = (
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: w, annotations: {dra-extender.io/demo: delete}}\nspec: 5\n"
    )
    result = await play(BASE + gone)
    assert failures(result) == [f"line {len(BASE.splitlines()) + 1}: Job default/w not found"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (workload("Deployment", "apps/v1", f"{APPS}\n  replicas: 1001"), "expected at most 1000 pods, got 1001"),
        (workload("Deployment", "apps/v1", f"{APPS}\n  replicas: -1"), "expected a whole number of at least 0, got -1"),
        (
            workload("Deployment", "apps/v1", f"{APPS}\n  replica: 2"),
            "spec.replica: unknown field; did you mean 'replicas'?",
        ),
        (workload("Job", "apps/v1", "parallelism: 1"), "apiVersion: expected batch/v1, got 'apps/v1'"),
        (workload("Job", "batch/v1", "parallelism: 1", expect="happy"), "expected bound, node=NAME, waiting or"),
        (
            workload("Job", "batch/v1", "parallelism: 1", annotations="dra-extender.io/expect: bound"),
            "metadata.annotations[dra-extender.io/expect]: expected on pods only",
        ),
        (
            workload("Job", "batch/v1", "parallelism: 1").replace('expect: "bound"', 'copies: "2"'),
            "expected no copies of a workload: it has replicas",
        ),
        (
            workload("Job", "batch/v1", "parallelism: 1", spec=POD_SPEC.replace("resourceClaims", "resourceClaim")),
            "spec.template.spec.resourceClaim: unknown field; did you mean 'resourceClaims'?",
        ),
        (
            workload("Job", "batch/v1", "parallelism: 1") + workload("Deployment", "apps/v1", APPS),
            "expected another name: Pod default/w-0 is one of Job default/w as well",
        ),
    ],
)
def test_wrong_workload_is_a_problem_with_file_and_line(text: str, said: str) -> None:
    with pytest.raises(ManifestError) as caught:
        load_texts([("file.yaml", text)])
    assert any(each.startswith("file.yaml:") and said in each for each in str(caught.value).splitlines()), caught.value


GROUPS = """apiVersion: scheduling.k8s.io/{version}
kind: Workload
metadata: {{name: my-workload}}
spec:
  {field}:
  - name: group-1
    {policy}: {{basic: {{}}}}
    resourceClaims: [{{name: pg-claim, resourceClaimTemplateName: gpu}}]
  - name: group-2
    {policy}: {{basic: {{}}}}
    resourceClaims: [{{name: pg-claim, resourceClaimTemplateName: gpu}}]
---
"""
GROUP = """apiVersion: scheduling.k8s.io/{version}
kind: PodGroup
metadata: {{name: my-podgroup-{number}}}
spec:
  {reference}
  resourceClaims: [{{name: pg-claim, resourceClaimTemplateName: gpu}}]
---
"""
MEMBERS = """apiVersion: apps/v1
kind: Deployment
metadata: {{name: example-{number}}}
spec:
  replicas: 2
  selector: {{matchLabels: {{app: example-{number}}}}}
  template:
    metadata: {{labels: {{app: example-{number}}}}}
    spec:
      schedulerName: dra-extender-scheduler
      containers: [{{name: pause, image: pause, resources: {{claims: [{{name: resource}}]}}}}]
      resourceClaims: [{{name: resource, podGroupResourceClaim: pg-claim}}]
      {group}
---
"""


@pytest.mark.parametrize(
    ("version", "policy", "reference", "group"),
    [
        (
            "v1alpha1",
            "policy",
            "workloadRef: {{name: my-workload}}\n  podGroupTemplateRef: {{name: group-{number}}}",
            "workloadRef: {{name: my-workload, podGroupName: my-podgroup-{number}}}",
        ),
        (
            "v1alpha2",
            "schedulingPolicy",
            "podGroupTemplateRef: {{workloadName: my-workload, podGroupTemplateName: group-{number}}}",
            "schedulingGroup: {{podGroupName: my-podgroup-{number}}}",
        ),
        (
            "v1beta1",
            "schedulingPolicy",
            "workloadRef: {{workloadName: my-workload, templateName: group-{number}}}",
            "schedulingGroup: {{podGroupName: my-podgroup-{number}}}",
        ),
    ],
    ids=["first draft", "second draft", "released"],
)
async def test_the_example_of_kep_5729_is_played_as_it_is_written(
    version: str, policy: str, reference: str, group: str
) -> None:
    """Workload, PodGroups and Deployments: pods of one group share a device, and the other group has another one."""
    text = BASE + GROUPS.format(version=version, policy=policy, field="podGroupTemplates")
    for number in (1, 2):
        text += GROUP.format(version=version, number=number, reference=reference.format(number=number))
        text += MEMBERS.format(number=number, group=group.format(number=number))
    result = await play(text)
    assert failures(result) == []
    devices: dict[str, set[str]] = {}
    for state in result.pods:
        assert state.node == "node-1"
        found = {device.device for use in state.claims for device in use.devices}
        devices.setdefault(state.pod.rpartition("-")[0], set()).update(found)
    assert [len(each) for each in devices.values()] == [1, 1]
    assert len(set.union(*devices.values())) == 2


@pytest.mark.parametrize(
    ("version", "field", "policy"),
    [("v1alpha1", "podGroups", "policy"), ("v1beta1", "podGroupTemplates", "schedulingPolicy")],
)
async def test_workload_without_podgroups_becomes_a_podgroup_for_each_template(
    version: str, field: str, policy: str
) -> None:
    text = BASE + GROUPS.format(version=version, policy=policy, field=field)
    group = (
        "workloadRef: {name: my-workload, podGroup: group-1}"
        if version == "v1alpha1"
        else "schedulingGroup: {podGroupName: group-1}"
    )
    result = await play(text + MEMBERS.format(number=1, group=group))
    assert failures(result) == []
    assert {state.node for state in result.pods} == {"node-1"}
    subjects = [step.subject for step in result.steps]
    assert subjects.count("PodGroup default/group-1") == subjects.count("PodGroup default/group-2") == 1


async def test_gang_of_a_workload_waits_for_all_of_its_pods() -> None:
    gang = """apiVersion: scheduling.k8s.io/v1beta1
kind: Workload
metadata: {name: train}
spec: {podGroupTemplates: [{name: workers, schedulingPolicy: {gang: {minCount: 4}}}]}
---
"""
    job = workload(
        "Job",
        "batch/v1",
        "parallelism: 4",
        "waiting",
        spec=POD_SPEC + "      schedulingGroup: {podGroupName: workers}\n",
    )
    result = await play(BASE + gang + job)
    assert failures(result) == []
    assert [state.node for state in result.pods] == [None] * 4


POD = """apiVersion: v1
kind: Pod
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec:
  schedulerName: dra-extender-scheduler
  schedulingGroup: {{podGroupName: team}}
  containers: [{{name: main, image: pause}}]
  resourceClaims: [{{name: gpu, resourceClaimTemplateName: gpu}}]
---
"""
TEAM = """apiVersion: scheduling.k8s.io/v1beta1
kind: PodGroup
metadata: {name: team}
spec:
  schedulingPolicy: {basic: {}}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
---
"""


def member(name: str, annotations: str) -> str:
    return POD.format(name=name, annotations=annotations)


async def test_pod_that_is_created_before_its_podgroup_waits_and_gets_the_claim_of_the_group() -> None:
    """No claim of its own is made for it: whether an entry is the group's shows when the group is there."""
    waits = 'dra-extender.io/expect: "waiting: PodGroup team", dra-extender.io/expect-at-end: bound'
    result = await play(BASE + member("a", waits) + TEAM + member("b", "dra-extender.io/expect: bound"))
    assert failures(result) == []
    assert {use.claim.rpartition("-")[0] for state in result.pods for use in state.claims} == {"team-gpu"}
    assert len({device.device for state in result.pods for use in state.claims for device in use.devices}) == 1


async def test_podgroup_without_claims_wakes_the_pods_that_waited_for_it() -> None:
    group = "apiVersion: scheduling.k8s.io/v1beta1\nkind: PodGroup\nmetadata: {name: team}\n"
    waits = "dra-extender.io/expect: waiting, dra-extender.io/expect-at-end: bound"
    result = await play(BASE + member("a", waits) + group + "spec: {schedulingPolicy: {basic: {}}}\n")
    assert failures(result) == []


async def test_podgroup_that_is_deleted_under_its_pods_stays_and_frees_nothing() -> None:
    """The finalizer of the API server keeps it until its pods are gone; then its devices are free."""
    gone = TEAM.replace("{name: team}", "{name: team, annotations: {dra-extender.io/demo: delete}}", 1)
    bound = member("a", "dra-extender.io/expect: bound")
    others = workload("Job", "batch/v1", "parallelism: 2")
    late = POD.format(
        name="late", annotations='dra-extender.io/expect: "waiting: in use", dra-extender.io/expect-at-end: bound'
    )
    late = late.replace("  schedulingGroup: {podGroupName: team}\n", "")
    result = await play(BASE + TEAM + bound + others + gone + late + member("a", "dra-extender.io/demo: delete"))
    assert failures(result) == []
    effects = {step.subject: step.effect for step in result.steps}
    assert effects["PodGroup default/team"] is ApplyEffect.TERMINATING
