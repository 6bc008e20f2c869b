"""Part "search": claims that are hard to allocate and refusals that are hard to explain, with a neighbour's pods in between."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, Final

from tests.hostile import part_compile
from tests.hostile.cel_calls import MOST_BYTES
from tests.hostile.climbing import Part, Subject
from tests.hostile.genes import Gene
from tests.hostile.part_informer import CPU_SECONDS, MODULE
from tests.hostile.verdicts import BROKEN, GROWN, STALL, Job

LIMITS: Final = (BROKEN, STALL, GROWN)
_ATTRIBUTES: Final = ("v", "w", "model", "none")
_MOST_REQUESTS: Final = 32
_CLAIM_BYTES: Final = 1_300_000
_LOOPS: Final = (
    "lists.range(700).all(x, lists.range(700).all(y, x * y >= 0)) && false",
    "lists.range(60).all(x, lists.range(60).all(y, x * y >= 0)) && device.driver == 'none'",
    "lists.range(30000).map(x, string(x)).join(',').split(',').size() == 1",
    "{'a': 1}[lists.range(9000).map(x, 'b').join()] == 1",
    "lists.range(20000).exists(x, device.attributes['evil.example.com'].v == x)",
    "device.attributes['evil.example.com'].none == 1",
)


def new_demand(name: str, random: Random) -> Gene:
    """A claim: requests, count of each, alternatives, constraint, attribute, selectors; and the selector's text."""
    numbers = (
        random.choice((1, 2, 5, 8, 12, 16, 32)),
        random.choice((1, 1, 2, 3)),
        random.choice((0, 0, 1, 8)),
        random.randrange(5),
        random.randrange(len(_ATTRIBUTES)),
        random.choice((1, 2, 8, 32)) if name != "demands" else 1,
        random.randrange(1, 4),
    )
    texts = ("true",)
    if name == "selectors":
        texts = (random.choice(_LOOPS),)
    parts = (part_compile.new_shape(random, "patterns"),) if name == "patterns" else ()
    return Gene(name, numbers, texts, parts)


def claim(gene: Gene, name: str) -> dict[str, Any]:
    count, devices, alternatives, constrained, attribute, selectors, _ = gene.numbers
    text = part_compile.text(gene.parts[0]) if gene.parts else gene.texts[0]
    room = max(1, _CLAIM_BYTES // max(1, len(text)))
    count = max(1, min(count, _MOST_REQUESTS, room))
    alternatives = min(alternatives, 8, room // count)
    selectors = max(1, min(selectors, 32, room // (count * max(1, alternatives))))
    requests = []
    for place in range(count):
        wanted = {
            "deviceClassName": "all",
            "allocationMode": "ExactCount",
            "count": devices,
            "selectors": [
                {"cel": {"expression": f"{text} //{place}.{number}"[:MOST_BYTES]}} for number in range(selectors)
            ],
        }
        choices = [{**wanted, "name": f"a{number}"} for number in range(alternatives)]
        requests.append({"name": f"r{place}", **({"firstAvailable": choices} if choices else {"exactly": wanted})})
    qualified = f"evil.example.com/{_ATTRIBUTES[attribute % len(_ATTRIBUTES)]}"
    kinds: list[Mapping[str, str]] = [{}, {"distinctAttribute": qualified}, {"matchAttribute": qualified}]
    constraints = [each for each in (kinds[constrained % 3], kinds[constrained // 3]) if each]
    metadata = {"name": name, "namespace": "evil", "uid": f"uid-{name}", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {"metadata": metadata, "spec": {"devices": {"requests": requests, "constraints": constraints}}, "status": {}}


def pods(gene: Gene) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Claims with the pods that use them."""
    found = []
    for place in range(gene.numbers[-1]):
        name = f"evil-{place}"
        spec = {
            "schedulerName": "dra-scheduler",
            "containers": [{"name": "c"}],
            "resourceClaims": [{"name": "c", "resourceClaimName": name}],
        }
        metadata = {"name": name, "namespace": "evil", "uid": f"uid-pod-{name}"}
        found.append((claim(gene, name), {"metadata": metadata, "spec": spec, "status": {"phase": "Pending"}}))
    return found


def _subject(name: str) -> Subject[Gene]:
    def change(random: Random, gene: Gene) -> Gene:
        other = new_demand(name, random)
        place = random.randrange(len(gene.numbers) + 1)
        if place == len(gene.numbers):
            return replace(gene, texts=other.texts, parts=other.parts)
        return replace(gene, numbers=(*gene.numbers[:place], other.numbers[place], *gene.numbers[place + 1 :]))

    def smaller(gene: Gene) -> Iterator[Gene]:
        for place, number in enumerate(gene.numbers):
            if number > 1:
                yield replace(gene, numbers=(*gene.numbers[:place], number // 2, *gene.numbers[place + 1 :]))

    def job(gene: Gene) -> Job:
        return {"kind": "search", "pods": pods(gene)}

    def text(gene: Gene) -> str:
        names = ("requests", "devices each", "alternatives", "constraints", "attribute", "selectors", "pods")
        shown = ", ".join(f"{word} {number}" for word, number in zip(names, gene.numbers, strict=True))
        selector = part_compile.text(gene.parts[0]) if gene.parts else gene.texts[0]
        return f"{shown}, selector {selector}"

    return Subject(name, partial(new_demand, name), change, job, text, smaller)


PART: Final = Part(
    "search",
    MODULE,
    lambda _: [(LIMITS, [_subject(name) for name in ("demands", "selectors", "patterns")])],
    CPU_SECONDS,
)
"""Search for claims that hold the service up."""
