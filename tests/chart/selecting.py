from collections.abc import Iterable

from tests.chart.programs import Object, documents


def of_kind(objects: Iterable[Object], kind: str) -> list[Object]:
    return [each for each in objects if each["kind"] == kind]


def only(objects: Iterable[Object], kind: str) -> Object:
    (found,) = of_kind(objects, kind)
    return found


def of_extender(objects: Iterable[Object], kind: str) -> Object:
    """The one object of a kind that belongs to the extender itself, and not to what makes its certificates."""
    return only([each for each in objects if component(each) == "extender"], kind)


def component(each: Object) -> str:
    """What the object is part of, by its label."""
    return str(each["metadata"].get("labels", {}).get("app.kubernetes.io/component", ""))


def policy(objects: Iterable[Object], about: str) -> Object:
    """The ValidatingAdmissionPolicy whose name ends with this; its binding denies what it refuses."""
    (found,) = [
        each for each in of_kind(objects, "ValidatingAdmissionPolicy") if each["metadata"]["name"].endswith(about)
    ]
    (bound,) = [
        each["spec"]
        for each in of_kind(objects, "ValidatingAdmissionPolicyBinding")
        if each["spec"]["policyName"] == found["metadata"]["name"]
    ]
    assert bound["validationActions"] == ["Deny"]
    return found


def pod_spec(objects: Iterable[Object]) -> Object:
    spec: Object = only(objects, "Deployment")["spec"]["template"]["spec"]
    return spec


def containers(objects: Iterable[Object]) -> dict[str, Object]:
    """Containers and sidecars of that pod by name."""
    spec = pod_spec(objects)
    return {each["name"]: each for each in (*spec.get("initContainers", ()), *spec["containers"])}


def environment(objects: Iterable[Object]) -> dict[str, str]:
    """The environment of the extender's container; a value that the kubelet fills in is empty."""
    return {each["name"]: each.get("value", "") for each in containers(objects)["extender"]["env"]}


def scheduler_configuration(objects: Iterable[Object]) -> Object:
    """The KubeSchedulerConfiguration that the pod mounts."""
    (found,) = documents(only(objects, "ConfigMap")["data"]["kube-scheduler.yaml"])
    return found
