"""The cluster of most areas: eight devices in one slice per node, one class with a CEL selector, a claim for one device per pod."""

from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from tests.controlplane import objects

Object = dict[str, Any]
NAMESPACE: Final = "bench"
CLASS: Final = "gpu"
DEVICES_PER_NODE: Final = 8
REQUEST: Final = "gpu"
SELECTOR: Final = (
    f'device.driver == "{objects.DRIVER}" && device.attributes["{objects.DRIVER}"].model == "accelerator-80"'
)


def node_name(index: int) -> str:
    """Name of a node, with the length that node names have."""
    return f"gpu-pool-a-{index:05}"


def node(index: int) -> Object:
    """A node with 64 cores."""
    return objects.node(node_name(index))


def node_slice(index: int) -> Object:
    name = node_name(index)
    return objects.resource_slice(
        name, node=name, devices=[_device(name, number) for number in range(DEVICES_PER_NODE)]
    )


def device_name(number: int) -> str:
    return f"gpu-{number}"


def device_class() -> Object:
    """The class all claims name."""
    return objects.device_class(CLASS, SELECTOR)


def claim_name(index: int) -> str:
    return f"claim-{index:05}"


def claim(index: int) -> Object:
    return objects.resource_claim(claim_name(index), NAMESPACE, objects.request(REQUEST, CLASS))


def pod_name(index: int) -> str:
    return f"pod-{index:05}"


def pod(index: int) -> Object:
    """A pod that asks for one device."""
    return small_pod(pod_name(index), claims={"gpu": claim_name(index)})


def small_pod(name: str, **fields: Any) -> Object:
    """A pod that asks for 1/128 of a node's cores, so that schedulers spread pods; `fields` as in objects.pod."""
    made = objects.pod(name, NAMESPACE, cpu="500m", **fields)
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = "2Gi"
    return made


def uid(what: str) -> str:
    """A UID that is the same in every process."""
    return str(uuid5(NAMESPACE_DNS, what))


def _device(node: str, number: int) -> Object:
    attributes: dict[str, str | int | bool] = {
        "model": "accelerator-80",
        "uuid": f"GPU-{uid(f'{node}/{number}')}",
        "index": number,
        "numa": number // 4,
    }
    return objects.device(device_name(number), attributes=attributes, capacity={"memory": "80Gi"})
