"""The smallest expression and device that still show a difference."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from tests.parity.fuzz.cel.expressions import parts

Json = Mapping[str, Any]

_MOST_ROUNDS: Final = 200


def smallest(scenario: Json, differs: Callable[[list[Json]], list[bool]]) -> Json:
    """Take parts away as long as the difference stays.

    Args:
        scenario: One that differs.
        differs: Says of each of some scenarios whether it differs in the same way.
    """
    for _ in range(_MOST_ROUNDS):
        candidates = sorted(_simpler(scenario), key=lambda item: (len(item["expression"]), len(str(item["device"]))))[
            :400
        ]
        verdicts = differs(candidates)
        better = next((item for item, same in zip(candidates, verdicts, strict=True) if same), None)
        if better is None:
            break
        scenario = better
    return scenario


def _simpler(scenario: Json) -> Iterator[Json]:
    text = scenario["expression"]
    seen = {text}
    for start, end in parts(text):
        around = (text[:start], text[end:])
        for shorter in (text[start:end], "".join(around), "1".join(around), "true".join(around)):
            if shorter and len(shorter) < len(text) and shorter not in seen:
                seen.add(shorter)
                yield {**scenario, "expression": shorter}
    device = scenario["device"]
    for field in ("Attributes", "Capacity"):
        for name in device.get(field) or {}:
            rest = {key: value for key, value in device[field].items() if key != name}
            yield {**scenario, "device": {**device, field: rest}}
