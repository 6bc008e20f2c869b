"""The story of `make demo-node`: what is applied, and the commands that show it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tests.controlplane import objects
from tests.controlplane.node.configuration import IMAGE
from tests.controlplane.objects import Object

NODES: Final = ("127.0.0.2", "127.0.0.3")
REQUESTS: Final = "requests.yaml"
APP: Final = "demo"
GIVEN: Final = f"kubectl logs -l app={APP} --prefix --tail=-1 | grep DRA_ | sort"
"""Shows what each container was given, in lines as GIVEN_LINE."""
GIVEN_LINE: Final = re.compile(r"\[pod/(?P<pod>[^/]+)/main\] (?P<variable>\S+)")
SECONDS: Final = 120


@dataclass(frozen=True, slots=True)
class Step:
    """A paragraph of the story: what it is about, and the commands that show it."""

    about: str
    commands: Sequence[str]


def wait(condition: str, *pods: str) -> str:
    """The command that waits for a condition of pods; it is not shown."""
    return f"{WAIT} --for=condition={condition} --timeout={SECONDS}s {' '.join(f'pod/{each}' for each in pods)}"


WAIT: Final = "kubectl wait"
STORY: Final = (
    Step("Two nodes with a real kubelet and a GPU each, which is cut either as MIG or as vGPU.", ["kubectl get nodes"]),
    Step(
        "One pod wants a vGPU, two want MIG: the extender keeps them on different GPUs.",
        [
            "kubectl apply -f vgpu-1.yaml",
            wait("Ready", "vgpu-1"),
            "kubectl apply -f mig-1.yaml",
            wait("Ready", "mig-1"),
            "kubectl apply -f mig-2.yaml",
            wait("Ready", "mig-2"),
            "kubectl dra devices | head -n 14",
        ],
    ),
    Step("The driver of each node gave the containers just that.", [GIVEN]),
    Step(
        "A third MIG slice fits nowhere.",
        ["kubectl apply -f mig-3.yaml", wait("PodScheduled=false", "mig-3"), "kubectl dra why mig-3 | head -n 8"],
    ),
    Step(
        "The pod with the vGPU ends, and its GPU is cut anew.",
        ["kubectl delete pod vgpu-1", wait("Ready", "mig-3"), GIVEN],
    ),
)


def manifests() -> dict[str, list[Object]]:
    """The files that the commands name, and `requests`, which is applied before."""
    templates = [
        objects.resource_claim_template(
            kind,
            "default",
            objects.request("gpu", "gpu", f'device.attributes["{objects.DRIVER}"].type == "{kind}"'),
        )
        for kind in ("mig", "vgpu")
    ]
    return {
        REQUESTS: [objects.device_class("gpu"), *templates],
        # The first pod could run on either node; the story is the same each time if it is told where.
        "vgpu-1.yaml": [pod("vgpu-1", "vgpu", nodeSelector={"kubernetes.io/hostname": NODES[0]})],
        **{f"mig-{number}.yaml": [pod(f"mig-{number}", "mig")] for number in (1, 2, 3)},
    }


def pod(name: str, template: str, **fields: Any) -> Object:
    """A pod that prints its environment and runs until it is deleted."""
    built = objects.pod(
        name,
        "default",
        templates={"gpu": template},
        labels={"app": APP},
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        dnsPolicy="Default",
        terminationGracePeriodSeconds=5,
        **fields,
    )
    built["spec"]["containers"][0] |= {"image": IMAGE, "imagePullPolicy": "Never", "args": ["env", "wait"]}
    return built
