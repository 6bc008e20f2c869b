"""Random cards cut into partitions: counters that suffice for some partitions together, and groups that part them."""

from typing import Final

from tests.parity.fuzz.allocator.chance import Chance, Json

GROUPS: Final = ("mig", "vgpu", "mps", "time-slice")
_PARTS: Final = (8, 4, 4, 2, 2, 2, 1, 1)
"""Sizes of partitions, in eighths of their card."""


def counter_sets(chance: Chance) -> list[Json]:
    """One to three cards, at times with a link that all of them share."""
    found: list[Json] = []
    for index in range(chance.between(1, 3)):
        counters = {"units": {"value": str(chance.between(4, 8))}}
        if chance.rarely(0.7):
            counters["memory"] = {"value": chance.among(["6Gi", "8Gi", "40Gi", "1.5Gi", "7500M"])}
        if chance.rarely(0.2):
            counters["copy-engines"] = {"value": "2"}
        found.append({"name": f"card-{index}", "counters": counters})
    if chance.rarely(0.3):
        found.append({"name": "link", "counters": {"lanes": {"value": str(chance.between(2, 6))}}})
    return found


def partition(chance: Chance, sets: list[Json]) -> list[Json]:
    """What one partition of a card draws; with a link it may draw on that, too."""
    cards = [each for each in sets if each["name"] != "link"]
    links = [each for each in sets if each["name"] == "link"]
    found = [_draw(chance, chance.among(cards), chance.among(_PARTS))]
    if links and chance.rarely(0.6):
        found.append(_draw(chance, links[0], chance.among([1, 2, 4])))
    elif len(cards) > 1 and chance.rarely(0.15):
        rest = [each for each in cards if each["name"] != found[0]["counterSet"]]
        found.append(_draw(chance, chance.among(rest), chance.among(_PARTS)))
    return found


def groups(chance: Chance) -> list[str]:
    """One or two groups; some are much more usual than others."""
    return chance.some(GROUPS[: chance.among([1, 2, 2, 3, 3, 4])], 2)


def _draw(chance: Chance, card: Json, eighths: int) -> Json:
    counters: Json = {}
    for name, total in card["counters"].items():
        if not counters or chance.rarely(0.9):
            counters[name] = {"value": _part(total["value"], eighths)}
    found: Json = {"counterSet": card["name"], "counters": counters}
    if chance.of("groups"):
        found["compatibilityGroups"] = groups(chance)
    return found


def _part(total: str, eighths: int) -> str:
    number = total.rstrip("GiM")
    suffix = total.removeprefix(number)
    part = float(number) * eighths / 8
    if not suffix:
        return str(max(1, round(part)))
    return f"{part:g}{suffix}"
