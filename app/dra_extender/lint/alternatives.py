"""Alternatives of a request that are never taken, because an earlier one is satisfied by whatever satisfies them."""

from typing import Any, Final, NamedTuple, Self

import msgspec

_EXACT_COUNT: Final = "ExactCount"


class Alternative(NamedTuple):
    """An alternative of `firstAvailable`, as far as two of them are compared.

    `rest`: all that it asks for beside a number of devices and selectors.
    """

    name: str
    mode: str
    devices: int
    selectors: frozenset[bytes]
    rest: bytes

    @classmethod
    def read(cls, body: Any) -> Self | None:
        """Return the alternative of an API object; None if a field has a wrong type, which is a finding of its own."""
        if not isinstance(body, dict):
            return None
        count, selectors = body.get("count", 1), body.get("selectors") or []
        if not isinstance(count, int) or not isinstance(selectors, list):
            return None
        rest = {"allocationMode": _EXACT_COUNT, **body, "name": "", "count": 0, "selectors": []}
        return cls(
            str(body.get("name")),
            str(rest["allocationMode"]),
            count,
            frozenset(msgspec.json.encode(selector, order="deterministic") for selector in selectors),
            msgspec.json.encode(rest, order="deterministic"),
        )

    def asks_for_no_less_than(self, earlier: "Alternative") -> str:
        """Return what it asks for in words of an earlier alternative, whose devices are always among its own; otherwise empty."""
        if self.rest != earlier.rest or self.devices < earlier.devices or not self.selectors >= earlier.selectors:
            return ""
        if self.selectors > earlier.selectors:
            # All devices of fewer may be free where not all of more are.
            return f"all of the earlier alternative {earlier.name} and more" if self.mode == _EXACT_COUNT else ""
        asked = "the same as" if self.devices == earlier.devices else f"more than the {earlier.devices} of"
        return f"{asked} the earlier alternative {earlier.name}"
