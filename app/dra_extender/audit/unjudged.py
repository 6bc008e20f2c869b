"""Checks that an audit could not make, and the claims that it could not compare with their devices."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dra_extender.audit.allocations import claims_text
from dra_extender.audit.findings import Check
from dra_extender.cel.explain.values import shortened
from dra_extender.model.api_json import Value

_LONGEST_REASON: Final = 1_000
SELECTORS_TOO_LONG: Final = "evaluating their selectors takes longer than an audit may"
_COMPARING: Final = (Check.REQUEST_NOT_MET, Check.DEVICE_MISMATCH, Check.DEVICE_DRIFT)


class UnjudgedCheck(Value, frozen=True):
    """Checks that could not be made, wholly or for some objects, and why."""

    checks: tuple[Check, ...]
    reason: str


class UnjudgedClaims:
    """Collects allocated claims that were not compared with their devices, or not with all of them, by reason."""

    def __init__(self) -> None:
        self._claims: dict[tuple[str, Check], dict[str, None]] = {}

    def without_spec(self, claim: str, reason: str) -> None:
        """Note a claim whose requests are not known."""
        self._note(claim, reason, Check.REQUEST_NOT_MET)

    def without_selection(self, claim: str, reason: str) -> None:
        """Note a claim whose selectors cannot be compared with its devices."""
        self._note(claim, reason, Check.DEVICE_MISMATCH)

    @property
    def reasons(self) -> Mapping[str, int]:
        """Why claims were not compared, each reason with the number of its claims."""
        numbers: Counter[str] = Counter()
        for (reason, _), claims in self._claims.items():
            numbers[reason] += len(claims)
        return numbers

    @property
    def claims(self) -> Collection[str]:
        """The claims, each once."""
        return set().union(*self._claims.values())

    def checks(self, missing: Collection[str] = ()) -> Iterator[UnjudgedCheck]:
        """Yield the checks by reason, except reasons that follow from a plural kind that is `missing`."""
        absent = frozenset(missing)
        for (reason, first), claims in self._claims.items():
            if not first.kinds & absent:
                checks = tuple(check for check in _COMPARING if not check.kinds & absent)
                noun = "claim" if len(claims) == 1 else "claims"
                yield UnjudgedCheck(checks=checks, reason=f"{noun} {claims_text(claims)}: {reason}")

    def _note(self, claim: str, reason: str, first: Check) -> None:
        self._claims.setdefault((shortened(reason, _LONGEST_REASON), first), {})[claim] = None
