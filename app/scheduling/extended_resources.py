from collections.abc import Mapping

from app.model.node import Node
from app.model.pod import Pod
from app.model.rejection import Code, Rejection


def backed_resources(pod: Pod, backing: Mapping[str, str]) -> tuple[str, ...]:
    """Extended resources of the pod that a device class backs (`backing`: resource name -> class name).

    With the in-tree plugin off nobody else checks them: NodeResourcesFit skips such a resource on nodes that do not list it.
    """
    return tuple(name for name in pod.extended_resources if name in backing)


def uncovered(node: Node, resources: tuple[str, ...], backing: Mapping[str, str]) -> Rejection | None:
    """Why the node cannot serve these resources; None if its allocatable lists all, so that NodeResourcesFit decides."""
    for name in resources:
        if name not in node.extended_resources:
            return Rejection(code=Code.EXTENDED_RESOURCE, detail=f"{name} is backed by device class {backing[name]}")
    return None
