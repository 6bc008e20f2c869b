"""The trace as API objects: a GPU is a device that pods share by a consumable capacity, and its model is an attribute."""

from typing import Final

from tests.bench import workload
from tests.bench.fits.trace import WHOLE, Kind, Room
from tests.controlplane import objects
from tests.controlplane.objects import Object

CLASS: Final = "gpu"
_DRIVER: Final = objects.DRIVER


def node_name(number: int) -> str:
    return workload.node_name(number)


def gpu_number(name: str) -> int:
    return int(name.removeprefix("gpu-"))


def device_class() -> Object:
    return objects.device_class(CLASS)


def node(number: int, room: Room) -> Object:
    return objects.node(node_name(number), cpu=f"{room.cpu}m", memory=f"{room.memory}Mi")


def node_slice(number: int, room: Room) -> Object:
    name = node_name(number)
    devices = [
        objects.device(
            f"gpu-{gpu}",
            attributes={"model": room.model},
            capacity={"share": str(WHOLE)},
            allowMultipleAllocations=True,
        )
        for gpu in range(len(room.gpus))
    ]
    return objects.resource_slice(name, node=name, devices=devices)


def claim(number: int, kind: Kind) -> Object:
    models = [f'device.attributes["{_DRIVER}"].model in {list(kind.models)}'.replace("'", '"')] if kind.models else []
    capacity = {"requests": {"share": str(kind.share)}}
    request = objects.request("gpu", CLASS, *models, count=kind.gpus, allocationMode="ExactCount", capacity=capacity)
    return objects.resource_claim(f"claim-{number:05}", workload.NAMESPACE, request)


def pod(number: int, kind: Kind) -> Object:
    claims = {"gpu": f"claim-{number:05}"} if kind.gpus else {}
    made = objects.pod(f"pod-{number:05}", workload.NAMESPACE, cpu=f"{kind.cpu}m", claims=claims)
    made["spec"]["containers"][0]["resources"]["requests"]["memory"] = f"{kind.memory}Mi"
    return made
