"""Partitioned GPUs as drivers publish them."""

from collections.abc import Sequence

from tests.controlplane.objects import Object, consumption, counter_set, device

PROCESSORS = "100"
MODES_POLICY = """\
rules:
  - name: mig
    devices: device.attributes[device.driver].type == "mig"
    compatibilityGroups: [mig]
  - name: vgpu
    devices: device.attributes[device.driver].type == "vgpu"
    compatibilityGroups: [vgpu]
"""
"""A policy that gives partitions the group of their kind. Every test has a driver of its own, so the rules cannot name one."""


def gpu(name: str = "gpu-0") -> Object:
    """The counter set of a GPU."""
    return counter_set(name, multiprocessors=PROCESSORS)


def partition(kind: str, index: int, share: str, gpu: str = "gpu-0", groups: Sequence[str] | None = None) -> Object:
    """A part of a GPU, called GPU-KIND-INDEX, in the group of its kind unless told otherwise (`()`: in none)."""
    consumed = consumption(gpu, groups=[kind] if groups is None else groups, multiprocessors=share)
    return device(f"{gpu}-{kind}-{index}", attributes={"type": kind}, consumes=[consumed])


def mig_or_vgpu() -> list[Object]:
    """A GPU that can be cut into MIG partitions or vGPU profiles; by the counters alone, into both at a time."""
    return [
        partition("mig", 0, "20"),
        partition("mig", 1, "20"),
        partition("vgpu", 0, "50"),
        partition("vgpu", 1, "50"),
    ]
