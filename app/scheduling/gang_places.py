"""What the plan of a gang asks about nodes and devices, answered from the ledger and by the allocator."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

import msgspec

from app.allocator import NoFit, PoolId
from app.allocator.state import Usage
from app.ledger.ledger import Ledger
from app.ledger.usage import Overlaid, UsageTable
from app.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from app.model.base import ModelError
from app.model.device import Device
from app.model.node import Node
from app.model.rejection import Code, Rejection
from app.scheduling.claim_lookup import FoundClaim
from app.scheduling.cool_downs import SetAside
from app.scheduling.extended_resources import Special
from app.scheduling.gang_board import DeviceId, Member
from app.scheduling.gang_members import Candidate
from app.scheduling.gang_offers import Offered
from app.scheduling.likeness import Likeness
from app.scheduling.searching import Searching

_NOTHING = ClaimPlacement(allocation=AllocationResult(), holdings=())


class LedgerPlaces:
    """Places (see there) for one plan, under one usage; devices that are `cooling` for some member count as taken."""

    def __init__(
        self,
        ledger: Ledger,
        searching: Searching,
        likeness: Likeness,
        candidates: Sequence[Candidate],
        offered: Offered,
        usage: Usage,
        cooling: Collection[DeviceId],
        out_of_time: Callable[[], bool],
    ) -> None:
        """Each argument must not change meanwhile."""
        self._ledger = ledger
        self._searching = searching
        self._likeness = likeness
        self._by_uid = {each.pod.uid: each for each in candidates}
        self._claims = {each.record.claim.metadata.uid: each for one in candidates for each in one.claims.open}
        self._special = {each.special: each for each in candidates if each.special}
        self._offered = offered
        self._usage = SetAside(usage, cooling) if cooling else usage
        self._comparable = not cooling
        self._under_holds = ledger.nodes_under_holds()
        self._reach: dict[DeviceId, Hashable | None] = {}
        self._devices: dict[PoolId, Mapping[str, tuple[str, Device]]] = {}
        self.out_of_time = out_of_time
        self.undecided = False

    def ask(
        self, claims: Sequence[str], node: str, kept: Sequence[DeviceHolding], without: frozenset[DeviceId]
    ) -> Mapping[str, ClaimPlacement] | None:
        """See Places."""
        at = self._ledger.nodes[node]
        wanted = {uid: claim for uid in claims if (claim := self._claim_on(uid, at)) is not None}
        placements = dict.fromkeys(claims, _NOTHING)
        if not wanted:
            return placements
        demand = self._searching.demand(tuple(wanted.values()))
        if isinstance(demand, Rejection):
            return None
        usage = SetAside(self._usage, without) if without else self._usage
        if kept:
            extra = UsageTable()
            extra.add(kept)
            usage = Overlaid(usage, extra)
        answer = self._searching.on_node(demand, at, usage, self.out_of_time)
        if isinstance(answer, NoFit):
            self.undecided |= any(each.code is Code.SEARCH_LIMIT for each in answer.rejections)
            return None
        return placements | dict(zip(wanted, answer.claims, strict=True))

    def allowed(self, member: Member, node: str) -> bool:
        """See Places."""
        candidate = self._by_uid[member.uid]
        return (
            node in self._offered.to(member.uid) and candidate.refusal(self._ledger.nodes[node], self._ledger) is None
        )

    def usable(self, placement: ClaimPlacement, node: str) -> bool:
        """See Places."""
        at = self._ledger.nodes[node]
        try:
            return placement.allocation.usable_on(at.name, at.labels)
        except ModelError:
            return False

    def reach(self, holding: DeviceHolding) -> Hashable | None:
        """See Places."""
        key = holding.driver, holding.pool, holding.device
        try:
            return self._reach[key]
        except KeyError:
            found = self._reach[key] = self._reach_of(holding, key)
            return found

    def alike(self, node: str) -> Hashable | None:
        """See Places."""
        if not self._comparable or self._under_holds is None or node in self._under_holds:
            return None
        at = self._ledger.nodes[node]
        kind = self._likeness.kind(at)
        if kind is None or not self._special:
            return kind
        return kind, at.extended_resources

    def _claim_on(self, uid: str, node: Node) -> FoundClaim | None:
        """The claim with this UID; None for one that is not needed on the node."""
        special = self._special.get(uid)
        if special is None:
            return self._claims[uid]
        found = special.special_on(node)
        return found.found if isinstance(found, Special) else None

    def _reach_of(self, holding: DeviceHolding, key: DeviceId) -> Hashable | None:
        nodes = self._ledger.slices.nodes_of(holding.pool_id)
        if nodes is not None and len(nodes) <= 1:
            return None
        if holding.device in self._usage.pool(holding.pool_id):
            return key
        devices = self._devices.get(holding.pool_id)
        if devices is None:
            slices = self._ledger.slices.of_pool(holding.pool_id)
            devices = self._devices[holding.pool_id] = {
                device.name: (each.name, device) for each in slices for device in each.devices
            }
        found = devices.get(holding.device)
        return key if found is None else (found[0], msgspec.json.encode(msgspec.structs.replace(found[1], name="")))
