"""Keeps the policy in force equal to the policy file, without a restart.

The file is checked every few seconds, through symbolic links, because kubelets exchange a link when a mounted ConfigMap changes.
When the file becomes invalid or vanishes, the last valid policy stays in force, and `/readyz?verbose` says so.
It is read and parsed in a thread, which takes up to two seconds for the largest file, while calls and probes are answered.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import structlog

from dra_extender.allocator.fragmentation.kinds import ExpectedPod
from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.allocator.overlay.policy_effects import ineffective_messages
from dra_extender.config.policy_file import InvalidPolicyError, MissingPolicyError, read_policy
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.slices import Prepared
from dra_extender.telemetry.metrics import Metrics

Fingerprint = tuple[int, int, int, int]

_LOG = structlog.get_logger(__name__)
_DEVICES_AT_A_TIME: Final = 64
_MOST_SHOWN: Final = 3


@dataclass(eq=False)
class PolicyReloader:
    """The policy of one service, from the file at `path` (None: no policy), which is looked at every so many `seconds`.

    `load` at the start, then `keep_reloading`; `notes` for the readiness page.  `expect` is told which pods the policy expects.
    """

    path: Path | None
    ledger: Ledger
    metrics: Metrics
    seconds: float
    compatibility_groups: bool
    expect: Callable[[Sequence[ExpectedPod]], None] = lambda _: None

    def __post_init__(self) -> None:
        self._last_fingerprint: Fingerprint | None = None
        self._policy: PolicyOverlay | None = None
        self._problem: str | None = None
        self._order = asyncio.Lock()
        # A sentence for each rule in force that has no effect, and the policy and version of the slices from which they follow.
        self.ineffective: Sequence[str] = ()
        self._checked: tuple[PolicyOverlay | None, int] = (None, -1)

    async def load(self) -> None:
        """Read the file before anything is decided.  One that does not exist (yet) means no policy.

        Raises:
            InvalidPolicyError: the file is wrong.
        """
        if self.path is None:
            return
        self._last_fingerprint = fingerprint(self.path)
        try:
            policy = await self._read(self.path)
        except MissingPolicyError as missing:
            self._problem = str(missing)
            self.metrics.policy("missing")
            _LOG.info("policy file is missing", problem=self._problem)
        except InvalidPolicyError as bad:
            self._refuse(bad, "refused")
            raise
        else:
            self._apply(policy, {})
            slices = tuple(self.ledger.overlays.under_policy)
            self._report_ineffective(await asyncio.to_thread(ineffective_messages, policy.rules, slices))

    async def keep_reloading(self) -> None:
        """Apply changes of the file until cancelled; return at once without a file."""
        while self.path is not None:
            await asyncio.sleep(self.seconds)
            await self.check()

    async def check(self) -> None:
        """Apply the file if it has changed, and find the rules without effect if the policy or a slice has changed.

        One check follows the other, so that no older file comes into force after a newer one.
        """
        async with self._order:
            await self._check_file()
            await self._check_effects()

    async def _check_file(self) -> None:
        path = self.path
        if path is None:
            return
        current = fingerprint(path)
        if current == self._last_fingerprint:
            return
        self._last_fingerprint = current
        try:
            policy = await self._read(path)
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
        self._apply(policy, prepared)

    def notes(self) -> Mapping[str, str]:
        """Report the policy in force, why a file was refused, and the devices where a rule fails with an error."""
        if self.path is None:
            return {}
        rules = "no policy" if self._policy is None else f"{len(self._policy.rules)} rules"
        notes = {"policy": f"{rules} of {self.path} in force"}
        if self._problem is not None:
            notes["policy"] = f"{rules} in force; {self._problem}"
        if self.ineffective:
            notes["policy-effects"] = "; ".join(self.ineffective)
        problems = self.ledger.overlays.problems
        shown = list(islice(problems, _MOST_SHOWN))
        if shown:
            more = sum(1 for _ in problems)
            notes["policy-rules"] = "; ".join(shown) + (f"; and {more} more" if more else "")
        return notes

    async def _check_effects(self) -> None:
        """Check the rules against all devices in a thread: it takes some 100 ms, and nothing waits for it."""
        policy, version = self._policy, self.ledger.inventory_versions.since(-1)[1]
        if policy is None or (self._checked[0] is policy and self._checked[1] == version):
            return
        slices = tuple(self.ledger.overlays.under_policy)
        ineffective = await asyncio.to_thread(ineffective_messages, policy.rules, slices)
        self._checked = policy, version
        self._report_ineffective(ineffective)

    def _report_ineffective(self, messages: Sequence[str]) -> None:
        for message in messages:
            if message not in self.ineffective:
                _LOG.warning("policy rule has no effect", problem=message, file=str(self.path))
        self.ineffective = messages

    async def _read(self, path: Path) -> PolicyOverlay:
        return await asyncio.to_thread(read_policy, path, compatibility_groups=self.compatibility_groups)

    async def _prepared(self, policy: PolicyOverlay) -> Prepared:
        """Apply the policy to every slice, in steps, so that calls are served in between."""
        prepared, devices = {}, 0
        for name, item in tuple(self.ledger.overlays.published.items()):
            prepared[name] = (item, policy.apply(item))
            devices += len(item.devices)
            if devices >= _DEVICES_AT_A_TIME:
                devices = 0
                await asyncio.sleep(0)
        return prepared

    def _apply(self, policy: PolicyOverlay, prepared: Prepared) -> None:
        changed = self.ledger.overlays.use_policy(policy, prepared)
        self.ledger.overlays_changed(changed)
        self.expect(policy.expected)
        self._policy, self._problem = policy, None
        self.metrics.policy("taken")
        _LOG.info("policy applied", file=str(self.path), rules=len(policy.rules), changed_pools=len(changed))

    def _refuse(self, problem: InvalidPolicyError, outcome: str) -> None:
        self._problem = str(problem)
        self.metrics.policy(outcome)
        _LOG.warning(
            "policy file refused",
            problem=self._problem,
            in_force="none" if self._policy is None else "the last valid policy",
        )


def fingerprint(path: Path) -> Fingerprint | None:
    """Return what changes when the file is written or replaced; None if there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size
