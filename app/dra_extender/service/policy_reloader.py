"""Keeps the policy in force equal to the policy file, without a restart.

The file is looked at every few seconds, through symbolic links, because a mounted ConfigMap changes by exchanging one.  A
file that is wrong or vanishes leaves the policy that was read before in force, and that is said.
"""

import asyncio
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.overlay.policy_effects import ineffective_rules, published_devices
from dra_extender.config.policy_file import InvalidPolicyError, MissingPolicyError, read_policy
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.overlays import Prepared
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.telemetry.metrics import Metrics

Fingerprint = tuple[int, int, int, int]

_LOG = structlog.get_logger(__name__)
_DEVICES_AT_A_TIME: Final = 64
_TROUBLES_SHOWN: Final = 3


class PolicyReloader:
    """The policy of one service.  `load` at the start, then `run`; `notes` for the readiness page."""

    def __init__(
        self, path: Path | None, ledger: Ledger, metrics: Metrics, *, seconds: float, compatibility_groups: bool
    ) -> None:
        """Watch this file, or none, every so many seconds."""
        self._path = path
        self._ledger = ledger
        self._metrics = metrics
        self._seconds = seconds
        self._groups = compatibility_groups
        self._seen: Fingerprint | None = None
        self._policy: PolicyOverlay | None = None
        self._problem: str | None = None
        # Sentences about rules that change nothing, and the policy and the state of slices of which they tell.
        self._idle: Sequence[str] = ()
        self._judged: tuple[PolicyOverlay | None, int] = (None, -1)

    def load(self) -> None:
        """Read the file before anything is decided.  One that does not exist (yet) means no policy.

        Raises:
            InvalidPolicyError: it is wrong, and there is no earlier one to go on with.
        """
        if self._path is None:
            return
        self._seen = fingerprint(self._path)
        try:
            policy = self._read(self._path)
        except MissingPolicyError as missing:
            self._problem = str(missing)
            self._metrics.policy("missing")
            _LOG.info("there is no policy", problem=self._problem)
        except InvalidPolicyError as bad:
            self._refuse(bad, "refused")
            raise
        else:
            self._take(policy, {})
            self._tell_idle(_ineffective_rules(policy, tuple(self._ledger.overlays.under_policy)))

    async def run(self) -> None:
        """Take over changes until cancelled; nothing to do without a file."""
        while self._path is not None:
            await asyncio.sleep(self._seconds)
            await self.check()

    async def check(self) -> None:
        """Take over the file if it is not the one seen last, and find out which rules have no effect if anything has changed."""
        await self._check_file()
        await self._check_effects()

    async def _check_file(self) -> None:
        path = self._path
        if path is None:
            return
        now = fingerprint(path)
        if now == self._seen:
            return
        self._seen = now
        try:
            policy = self._read(path)
            prepared = await self._prepared(policy)
        except InvalidPolicyError as problem:
            self._refuse(problem, "missing" if isinstance(problem, MissingPolicyError) else "refused")
            return
        except Exception as problem:
            self._refuse(
                InvalidPolicyError(f"policy file {path}: it cannot be used: {type(problem).__name__}: {problem}"),
                "refused",
            )
            raise
        self._take(policy, prepared)

    def notes(self) -> Mapping[str, str]:
        """What is in force, what was refused, and to which devices a rule could not be applied."""
        if self._path is None:
            return {}
        rules = "no policy" if self._policy is None else f"{len(self._policy.rules)} rules"
        notes = {"policy": f"{rules} of {self._path} in force"}
        if self._problem is not None:
            notes["policy"] = f"{rules} in force; {self._problem}"
        if self._idle:
            notes["policy-effects"] = "; ".join(self._idle)
        troubles = self._ledger.overlays.troubles
        shown = list(islice(troubles, _TROUBLES_SHOWN))
        if shown:
            more = sum(1 for _ in troubles)
            notes["policy-rules"] = "; ".join(shown) + (f"; and {more} more" if more else "")
        return notes

    async def _check_effects(self) -> None:
        """Look at all devices, beside the event loop: it takes some 100 ms, and nothing waits for it."""
        policy, place = self._policy, self._ledger.inventory.since(-1)[1]
        if policy is None or (self._judged[0] is policy and self._judged[1] == place):
            return
        slices = tuple(self._ledger.overlays.under_policy)
        idle = await asyncio.to_thread(_ineffective_rules, policy, slices)
        self._judged = policy, place
        self._tell_idle(idle)

    def _tell_idle(self, idle: Sequence[str]) -> None:
        for sentence in idle:
            if sentence not in self._idle:
                _LOG.warning(sentence, file=str(self._path))
        self._idle = idle

    def _read(self, path: Path) -> PolicyOverlay:
        return read_policy(path, compatibility_groups=self._groups)

    async def _prepared(self, policy: PolicyOverlay) -> Prepared:
        """What the policy makes of every slice, worked out in pieces, so that calls are answered meanwhile."""
        prepared, devices = {}, 0
        for name, item in tuple(self._ledger.overlays.published.items()):
            prepared[name] = (item, policy.apply(item))
            devices += len(item.devices)
            if devices >= _DEVICES_AT_A_TIME:
                devices = 0
                await asyncio.sleep(0)
        return prepared

    def _take(self, policy: PolicyOverlay, prepared: Prepared) -> None:
        changed = self._ledger.overlays.use_policy(policy, prepared)
        self._ledger.overlays_changed(changed)
        self._policy, self._problem = policy, None
        self._metrics.policy("taken")
        _LOG.info("policy is in force", file=str(self._path), rules=len(policy.rules), changed_pools=len(changed))

    def _refuse(self, problem: InvalidPolicyError, outcome: str) -> None:
        self._problem = str(problem)
        self._metrics.policy(outcome)
        kept = "no policy" if self._policy is None else "the policy read before"
        _LOG.warning(f"{kept} stays in force", problem=self._problem)


def _ineffective_rules(policy: PolicyOverlay, slices: Sequence[ResourceSlice]) -> Sequence[str]:
    """Rules that change nothing about these slices, in sentences."""
    found = ineffective_rules(policy.rules, published_devices(slices) or ())
    return [f"rule {name} has no effect: {why}" for name, why in found]


def fingerprint(path: Path) -> Fingerprint | None:
    """What changes when the file is written or another one takes its place; None when there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
