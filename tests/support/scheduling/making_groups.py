"""PodGroups with claims from templates on a cluster in memory where nobody but we makes them, and processes that crash."""

import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from dra_extender.model.templated_claim import ENTRY_ANNOTATION
from dra_extender.simulator.apiserver.objects import Json, Key, StoredKind
from dra_extender.simulator.controllers.claims import ClaimController

from tests.support.scheduling.grouped import GROUP, TEMPLATED, PodGroupExtender

GPU: Final = TEMPLATED
NET: Final = {"name": "net", "resourceClaimTemplateName": "template"}
OWN: Final = {"name": "own", "resourceClaimTemplateName": "template"}
WRITES: Final = ("create", "delete", "record_claims", "unprotect")
STEP: Final = 0.5
GRACE: Final = 5.0
LONG: Final = 12.0


class CrashError(Exception):
    """The process dies here."""


class Boundaries:
    """Stands in front of ports, counts their writes, and lets the process die at one: before its effect, or after it."""

    def __init__(self, fatal: int = 0, *, after: bool = False) -> None:
        self.writes = 0
        self._fatal = fatal
        self._after = after

    def before(self, port: Any) -> Any:
        """The port with the boundary in front of its writes."""
        return _Guarded(port, self)

    async def cross(self, write: Callable[[], Awaitable[Any]]) -> Any:
        self.writes += 1
        dies = self.writes == self._fatal
        if dies and not self._after:
            raise CrashError
        answer = await write()
        if dies:
            raise CrashError
        return answer


class _Guarded:
    def __init__(self, port: Any, boundaries: Boundaries) -> None:
        self._port = port
        self._boundaries = boundaries

    def __getattr__(self, name: str) -> Any:
        original = getattr(self._port, name)
        if name not in WRITES:
            return original

        async def call(*arguments: Any) -> Any:
            return await self._boundaries.cross(lambda: original(*arguments))

        return call


class ClaimMakingExtender(PodGroupExtender):
    """A world whose process makes the claims of PodGroups."""

    def __init__(self, setting: str = "always", *, enabled: bool = True) -> None:
        super().__init__(setting)
        self.options = dataclasses.replace(self.options, group_claims_enabled=enabled, group_claims_grace_seconds=GRACE)
        self.template()
        self.devices_everywhere(8)
        self.restart()

    def restart(self, boundaries: Boundaries | None = None) -> None:
        """A new process begins its term."""
        if boundaries is None:
            self.claims = self.pods = self.groups = None
        else:
            self.claims = boundaries.before(self.cluster.claims)
            self.pods = boundaries.before(self.cluster.pods)
            self.groups = boundaries.before(self.cluster.pod_groups)
        self.start()
        self.sync()
        if self.options.group_claims_enabled:
            self.extender.group_claims.begin()
            self.extender.group_claims.sweep()

    async def work(
        self, seconds: float = LONG, step: float = STEP, meanwhile: Callable[[], None] | None = None
    ) -> None:
        """Time passes in steps, in which the watch keeps up, the process looks at what is to be done, and `meanwhile` is done."""
        for _ in range(int(seconds / step)):
            if meanwhile is not None:
                meanwhile()
            self.sync()
            await self.extender.group_claims.reconcile_due()
            self.clock.seconds += step
        self.sync()

    def manage_without_gate(self) -> None:
        """kube-controller-manager without the gate does its work."""
        ClaimController(self.cluster.store, for_groups=False).reconcile()

    def made(self, entry: str, owner: str = GROUP) -> list[str]:
        """Names of the claims made for an entry of a pod or PodGroup."""
        return sorted(
            claim["metadata"]["name"]
            for claim in self.cluster.store.all(StoredKind.CLAIM)
            if claim["metadata"]["annotations"].get(ENTRY_ANNOTATION) == entry
            and claim["metadata"]["ownerReferences"][0]["name"] == owner
        )

    def recorded(self, kind: StoredKind, name: str) -> Mapping[str, str]:
        """What the status of a pod or PodGroup says of claims made for it."""
        thing = self.cluster.store.get(Key(kind, "default", name))
        statuses: list[Json] = thing.get("status", {}).get("resourceClaimStatuses") or []
        return {each["name"]: each["resourceClaimName"] for each in statuses}

    def stored_group(self, name: str = GROUP) -> Json:
        return self.cluster.store.get(Key(StoredKind.POD_GROUP, "default", name))

    def edit_group(self, change: Callable[[Json], None]) -> None:
        """What somebody does to the PodGroup."""
        self.cluster.store.edit_unchecked(Key(StoredKind.POD_GROUP, "default", GROUP), change)
        self.sync()
