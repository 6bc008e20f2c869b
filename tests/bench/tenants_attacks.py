"""What a user who may create pods and claims in one namespace (the role `edit`) can put in front of everybody else's pods."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.bench import workload
from tests.controlplane import objects

NAMESPACE: Final = "attacker"
SLOT: Final = "slot"
SLOTS: Final = 11
DEVICES_PER_NODE: Final = 16
_REQUESTS: Final = SLOTS + 1
_PATTERNS: Final = 160
_POWERS: Final = 5
_LARGE: Final = 9_600


@dataclass(frozen=True, slots=True)
class Attack:
    """Claims that cost much and can never be allocated; `spec(n)` is another one for each n, so that nothing of it is cached."""

    name: str
    spec: Callable[[int], workload.Object]

    def claim(self, number: int) -> workload.Object:
        """The claim of one attacking pod."""
        made = objects.resource_claim(claim_name(number), NAMESPACE)
        return {**made, "spec": self.spec(number)}


def claim_name(number: int) -> str:
    """Name of the claim of one attacking pod, and of the pod."""
    return f"attack-{number:06}"


def pod(number: int) -> workload.Object:
    """An attacking pod."""
    return objects.pod(claim_name(number), NAMESPACE, claims={"gpu": claim_name(number)})


def node_slice(index: int) -> workload.Object:
    """The one slice of a node: devices as in the other areas, with an attribute of eleven values."""
    name = workload.node_name(index)
    devices = [
        objects.device(f"gpu-{number:02}", attributes={"model": "accelerator-80", SLOT: number % SLOTS})
        for number in range(DEVICES_PER_NODE)
    ]
    return objects.resource_slice(name, node=name, devices=devices)


def _quadratic_search(number: int) -> workload.Object:
    """A search from the right for a text that nearly matches everywhere: quadratic in CPython."""
    text = _long_text(_POWERS)
    part = f"'ab{number}'+{_long_text(_POWERS - 1)}+{_long_text(_POWERS - 1)}"
    return _selected(f"{text}.lastIndexOf({part}) == 1")


def _long_text(powers: int) -> str:
    """An expression for 10 ** powers letters."""
    return "'a'" + powers * ".replace('a','aaaaaaaaaa')"


def _unicode_patterns(number: int) -> workload.Object:
    """A selector of nearly 10 KiB whose regular expressions RE2 expands to millions of instructions."""
    each = (rf"device.driver.matches('[\\pL\\pN\\pS]{{1,90}}{number}x{index}')" for index in range(_PATTERNS))
    return _selected(" || ".join(each))


def _selected(expression: str) -> workload.Object:
    return objects.claim_spec(objects.request("gpu", workload.CLASS, expression))


def _distinct_slots(number: int) -> workload.Object:
    """Twelve requests for devices that differ in an attribute of eleven values: no search can tell quickly."""
    names = [f"r{number}-{index}" for index in range(_REQUESTS)]
    constraint = {"requests": names, "distinctAttribute": f"{objects.DRIVER}/{SLOT}"}
    requests = [objects.request(name, workload.CLASS) for name in names]
    return objects.claim_spec(*requests, constraints=[constraint])


def large_claim(number: int) -> workload.Object:
    """A claim of 10 KiB, nearly all of it configuration that no decision reads; no two are alike."""
    parameters = {"padding": f"{number:08}" * (_LARGE // 8)}
    config = {"opaque": {"driver": objects.DRIVER, "parameters": parameters}}
    request = objects.request("gpu", workload.CLASS)
    return objects.resource_claim(f"large-{number:06}", NAMESPACE, request, config=[config])


ATTACKS: Final = (
    Attack("quadratic text search", _quadratic_search),
    Attack("Unicode patterns", _unicode_patterns),
    Attack("hard searches", _distinct_slots),
)
