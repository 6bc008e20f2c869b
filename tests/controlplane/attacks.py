"""What a user who may create pods and claims in one namespace (the role `edit`) can put in front of everybody else's pods."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.controlplane import objects
from tests.controlplane.objects import Object

SLOT: Final = "slot"
NUMBER: Final = "number"
SLOTS: Final = 11
DEVICES: Final = 16
_REQUESTS: Final = SLOTS + 1
_PATTERNS: Final = 160
_POWERS: Final = 5
_LARGE: Final = 9_600


@dataclass(frozen=True, slots=True)
class Attack:
    """Claims that cost much and can never be allocated: `spec` is another one for each number, so no cache helps."""

    name: str
    spec: Callable[[int, str, str], Object]

    def claim(self, number: int, namespace: str, device_class: str, driver: str) -> Object:
        made = objects.resource_claim(attacker(number), namespace)
        return {**made, "spec": self.spec(number, device_class, driver)}


def attacker(number: int) -> str:
    """Name of one attacking pod, and of its claim."""
    return f"attack-{number:06}"


def pod(number: int, namespace: str) -> Object:
    return objects.pod(attacker(number), namespace, claims={"gpu": attacker(number)})


def devices() -> list[Object]:
    """The devices of a node, with an attribute of eleven values and one that is different for each."""
    return [
        objects.device(f"gpu-{number:02}", attributes={"model": "accelerator-80", SLOT: number % SLOTS, NUMBER: number})
        for number in range(DEVICES)
    ]


def large_claim(number: int, namespace: str, device_class: str) -> Object:
    """A claim of 10 KiB, nearly all of it configuration that no decision reads; no two are alike."""
    parameters = {"padding": f"{number:08}" * (_LARGE // 8)}
    config = {"opaque": {"driver": objects.DRIVER, "parameters": parameters}}
    request = objects.request("gpu", device_class)
    return objects.resource_claim(f"large-{number:06}", namespace, request, config=[config])


def _quadratic_search(number: int, device_class: str, _: str) -> Object:
    """A search from the right for a text that nearly matches everywhere: quadratic in CPython."""
    part = f"'ab{number}'+{_long_text(_POWERS - 1)}+{_long_text(_POWERS - 1)}"
    return _selected(f"{_long_text(_POWERS)}.lastIndexOf({part}) == 1", device_class)


def _long_text(powers: int) -> str:
    """An expression for 10 ** powers letters."""
    return "'a'" + powers * ".replace('a','aaaaaaaaaa')"


def _unicode_patterns(number: int, device_class: str, _: str) -> Object:
    """A selector of nearly 10 KiB whose regular expressions RE2 expands to millions of instructions."""
    each = (rf"device.driver.matches('[\\pL\\pN\\pS]{{1,90}}{number}x{index}')" for index in range(_PATTERNS))
    return _selected(" || ".join(each), device_class)


def _selected(expression: str, device_class: str) -> Object:
    return objects.claim_spec(objects.request("gpu", device_class, expression))


def _distinct_slots(number: int, device_class: str, driver: str) -> Object:
    """Twelve requests for devices that differ in an attribute of eleven values, and in another one: no search can tell quickly."""
    names = [f"r{number}-{index}" for index in range(_REQUESTS)]
    constraints = [{"requests": names, "distinctAttribute": f"{driver}/{name}"} for name in (SLOT, NUMBER)]
    requests = [objects.request(name, device_class) for name in names]
    return objects.claim_spec(*requests, constraints=constraints)


def _matches_nothing(number: int, device_class: str, _: str) -> Object:
    """No attack, but what every pod costs the others that fits nowhere."""
    return _selected(f'device.driver == "none-{number}"', device_class)


HOPELESS: Final = Attack("pods without a device", _matches_nothing)
ATTACKS: Final = (
    Attack("quadratic text search", _quadratic_search),
    Attack("Unicode patterns", _unicode_patterns),
    Attack("hard searches", _distinct_slots),
)
