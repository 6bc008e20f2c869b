"""Where two answers to one scenario differ, in words.  Texts of errors, timings and costs are not compared; amounts
compare by value."""

from collections.abc import Iterator, Mapping
from typing import Any

from dra_extender.cel.values.quantity import parse_quantity

Json = Mapping[str, Any]

_PICK = ("request", "driver", "pool", "device")


def verdict(node: Json) -> str:
    """What a node's answer says: fit, no, node (an error of this node alone) or fatal."""
    if node.get("error"):
        return "node" if node.get("nodeOnly") else "fatal"
    return "fit" if node.get("fits") else "no"


def differences(expected: Json, answer: Json) -> Iterator[str]:
    """One sentence for each difference that matters; nothing if the answers agree."""
    if bool(expected.get("error")) != bool(answer.get("error")):
        yield f"expected error {expected.get('error')!r}, got {answer.get('error')!r}"
        return
    wanted, found = expected.get("nodes") or [], answer.get("nodes") or []
    if [node["node"] for node in wanted] != [node["node"] for node in found]:
        yield "the nodes differ or their order does"
        return
    for one, other in zip(wanted, found, strict=True):
        for text in _node_differences(one, other):
            yield f"{one['node']}: {text}"


def _node_differences(expected: Json, answer: Json) -> Iterator[str]:
    if verdict(expected) != verdict(answer):
        yield f"expected {verdict(expected)}, got {verdict(answer)} {answer.get('error', '')}"
        return
    if verdict(expected) != "fit":
        return
    wanted, found = expected.get("results") or [], answer.get("results") or []
    if len(wanted) != len(found):
        yield f"expected {len(wanted)} allocations, got {len(found)}"
        return
    mine: dict[str, int] = {}
    theirs: dict[str, int] = {}
    for index, (one, other) in enumerate(zip(wanted, found, strict=True)):
        parts = (
            ("picks", _picks(one), _picks(other)),
            ("results", _details(one, theirs), _details(other, mine)),
            ("config", _config(one), _config(other)),
            ("nodeSelector", one.get("nodeSelector"), other.get("nodeSelector")),
        )
        for name, left, right in parts:
            if left != right:
                yield f"claim {index}: {name}: expected {left}, got {right}"


def _results(allocation: Json) -> list[Json]:
    return (allocation.get("devices") or {}).get("results") or []


def _picks(allocation: Json) -> list[tuple[str, ...]]:
    return [tuple(result.get(field, "") for field in _PICK) for result in _results(allocation)]


def _details(allocation: Json, shares: dict[str, int]) -> list[dict[str, Any]]:
    """Everything else in the device results; absent, null and empty are the same, share ids count by first appearance."""
    details = []
    for result in _results(allocation):
        detail = {key: value for key, value in result.items() if key not in _PICK and value not in (None, [], {})}
        if "shareID" in detail:
            detail["shareID"] = shares.setdefault(detail["shareID"], len(shares))
        if "consumedCapacity" in detail:
            detail["consumedCapacity"] = {key: parse_quantity(text) for key, text in detail["consumedCapacity"].items()}
        details.append(detail)
    return details


def _config(allocation: Json) -> list[dict[str, Any]]:
    entries = (allocation.get("devices") or {}).get("config") or []
    return [{key: value for key, value in entry.items() if value not in (None, [])} for entry in entries]
