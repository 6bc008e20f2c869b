"""Answers the questions of a gang's search about nodes and devices, from the ledger and with the allocator."""

from collections.abc import Collection, Generator, Hashable, Mapping, MutableMapping, Sequence
from typing import Final, NamedTuple, TypeVar

import msgspec

from dra_extender.allocator.demand.demand import Demand, Reads, reads_of
from dra_extender.allocator.state.reasons import Code, NoFit, Rejection, SearchPaused
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.usage import UsageTable, UsageWith
from dra_extender.model.allocation import AllocationResult, ClaimPlacement, DeviceHolding
from dra_extender.model.api_json import ModelError
from dra_extender.model.device import Device, DeviceId, PoolId
from dra_extender.model.digest import digest_of
from dra_extender.model.node import Node
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.extended_need import ExtendedClaimNeed
from dra_extender.scheduling.claims.live_reads import UnreadSpecs
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.claims.pod_claims import PodClaims
from dra_extender.scheduling.evaluation.backoff import BackoffUsage
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.gang.members import GangMember, planned_claim
from dra_extender.scheduling.gang.offers import OfferedNodes

_NOTHING = ClaimPlacement(allocation=AllocationResult(), holdings=())

T = TypeVar("T")
Pausable = Generator[None, None, T]
"""A search or a part of it, which yields where it pauses."""


class PlanUnfinishedError(Exception):
    """The plan cannot be finished now: specs of claims have to be read first (`unread`), or the budget of the call is closed."""

    def __init__(self, unread: UnreadSpecs | None = None) -> None:
        super().__init__("" if unread is None else str(unread))
        self.unread = unread


MAX_STEPS: Final = 50_000


class PlanRequest(NamedTuple):
    """The members to plan, and at least how many of them get a node, perhaps without the member of the call (`pod_uid`).

    `ignored_holds`: holds (UIDs of claims) that count as ended.  `freed`: allocations that count as released.
    """

    pod_uid: str
    candidates: Sequence[PodClaims]
    needed: int
    offered: OfferedNodes
    steps: int = MAX_STEPS
    ignored_holds: frozenset[str] = frozenset()
    freed: tuple[DeviceHolding, ...] = ()

    @property
    def key(self) -> Hashable:
        """Equal for equal requests of one or several calls."""
        pods = tuple(member.pod.uid for member in self.candidates)
        return self.pod_uid, pods, self.needed, self.steps, self.ignored_holds, self.freed


class PlacementOracle:
    """Answers the questions of one search about nodes and devices; devices `backed_off` for some member count as in use.

    `undecided`: some question was not decided for lack of time, so that a None may be wrong.
    """

    def __init__(
        self,
        ledger: Ledger,
        allocator: NodeAllocator,
        equivalence: NodeEquivalence,
        capacities: MutableMapping[Hashable, int],
        request: PlanRequest,
        backed_off: Collection[DeviceId],
        budget: CallBudget,
    ) -> None:
        """Nothing of this may change during the search, except that capacities are added, and `budget` is set after a pause.

        `capacities`: how many members of a kind fit on a node, by symmetry class and kind.
        """
        self._ledger = ledger
        self._allocator = allocator
        self._equivalence = equivalence
        self._capacities = capacities
        ignored_holds, freed, candidates = request.ignored_holds, request.freed, request.candidates
        usage = ledger.usage_without(ignored_holds, freed) if ignored_holds or freed else ledger.usage()
        self._by_uid = {member.pod.uid: member for member in candidates}
        self._claims = {claim.uid: claim for member in candidates for claim in member.open}
        self._extended = {uid: member for member in candidates if (uid := planned_claim(member))}
        self._offered = request.offered
        self._usage = BackoffUsage(usage, backed_off) if backed_off else usage
        # Where the usage may differ from what is allocated; None: on any node.
        self._differing_nodes = None if freed else ledger.nodes_under_holds()
        self._comparable = not backed_off
        self._reach: dict[DeviceId, Hashable | None] = {}
        self._devices: dict[PoolId, Mapping[str, tuple[str, Device]]] = {}
        self.budget = budget
        self._reads = self._attributes_read()
        reads = None if self._reads is None else "\0".join(sorted(self._reads))
        self._reads_digest = None if reads is None else digest_of(reads.encode(errors="surrogatepass"))
        self.undecided = False

    def ask(
        self, claims: Sequence[str], node_name: str, holdings: Sequence[DeviceHolding], excluded: frozenset[DeviceId]
    ) -> Pausable[Mapping[str, ClaimPlacement] | None]:
        """Return a placement for each claim on this node in addition to these `holdings`, with no `excluded` device, or None."""
        node = self._ledger.nodes[node_name]
        open_claims = {uid: claim for uid in claims if (claim := self._claim_on(uid, node)) is not None}
        placements = dict.fromkeys(claims, _NOTHING)
        while open_claims:
            try:
                demand = self._demand(tuple(open_claims.values()))
                if isinstance(demand, Rejection):
                    self.undecided |= demand.code is Code.SEARCH_LIMIT
                    return None
                usage = BackoffUsage(self._usage, excluded) if excluded else self._usage
                if holdings:
                    extra = UsageTable()
                    extra.add(holdings)
                    usage = UsageWith(usage, extra)
                versions = self._ledger.state_versions.version(node_name), self._ledger.hold_versions.version(node_name)
                usage_key = (tuple(holdings), excluded, *versions)
                answer = self._allocator.search(demand, node, usage, self.budget, usage_key)
            except SearchPaused:
                yield
                continue
            if isinstance(answer, NoFit):
                self.undecided |= any(rejection.code is Code.SEARCH_LIMIT for rejection in answer.rejections)
                return None
            return placements | dict(zip(open_claims, answer.claims, strict=True))
        return placements

    def out_of_time(self) -> bool:
        """Return whether the time for planning is up; the end of a slice is a pause, not the end of the time."""
        return self.budget.remaining <= 0

    def pause_due(self) -> bool:
        """Return whether the search has to pause now, between two questions."""
        return self.budget.pause_due()

    def allowed(self, member: GangMember, node: str) -> bool:
        """Return whether the offer, the allocated claims and the extended resources of the member permit the node."""
        uid, ledger = member.uid, self._ledger
        if node not in self._offered.to(uid):
            return False
        if not self._offered.is_known(uid, node) and not ledger.member_fit.admits(uid, node):
            return False
        return not isinstance(self._by_uid[uid].extended_claim_on(ledger.nodes[node], ledger), Rejection)

    def usable(self, placement: ClaimPlacement, node: str) -> bool:
        """Return whether a pod on the node can use the devices of the placement."""
        try:
            return placement.allocation.allows(self._ledger.nodes[node])
        except ModelError:
            return False

    def reach(self, holding: DeviceHolding) -> Hashable | None:
        """Return a value that equivalent devices of all nodes share; None for a device that only one node reaches."""
        key = holding.device_id
        try:
            return self._reach[key]
        except KeyError:
            reach = self._reach[key] = self._reach_of(holding, key)
            return reach

    def symmetry_class(self, node_name: str) -> Hashable | None:
        """Return a value that is equal for equivalent nodes, for which every answer is the same; None without an equivalent."""
        node = self._ledger.nodes[node_name]
        inventory = self._equivalence.inventory(node) if self._comparable else None
        if inventory is None:
            return None
        if self._differing_nodes is None or node_name in self._differing_nodes:
            kind = self._equivalence.class_of(node, inventory, self._reads, self._usage)
        else:
            kind = self._equivalence.class_of(node, inventory, self._reads)
        if kind is None:
            return None
        # Capacities outlive the search, and what claims read is as long as their authors like.
        return (
            kind,
            self._reads_digest,
            self._ledger.changes.classes,
            node.extended_resources if self._extended else None,
        )

    def capacity(
        self, members: Sequence[GangMember], node: str, symmetry_class: Hashable | None
    ) -> Pausable[int | None]:
        """Return how many of these members, all of one kind and without shared claims, fit on this node; None if not known."""
        if symmetry_class is None:
            return None
        key = symmetry_class, members[0].claim_kinds, len(members)
        capacity = self._capacities.get(key)
        if capacity is None:
            before, self.undecided = self.undecided, False
            capacity = yield from self._count_fitting(members, node)
            undecided, self.undecided = self.undecided, before
            if undecided:
                return None
            self._capacities[key] = capacity
        return capacity

    def _count_fitting(self, members: Sequence[GangMember], node: str) -> Pausable[int]:
        placed: Mapping[str, ClaimPlacement] = {}
        for count, member in enumerate(members):
            holdings = [holding for placement in placed.values() for holding in placement.holdings]
            added = yield from self.ask(member.claims, node, holdings, frozenset())
            if added is not None:
                placed = {**placed, **added}
                continue
            if placed:
                added = yield from self.ask([*placed, *member.claims], node, (), frozenset())
            if added is None:
                return count
            placed = added
        return len(members)

    def _demand(self, claims: Sequence[FoundClaim]) -> Demand | Rejection:
        demand = self._allocator.demand(claims, self.budget)
        if isinstance(demand, UnreadSpecs):
            raise PlanUnfinishedError(demand)
        return demand

    def _attributes_read(self) -> Reads | None:
        """Return the attributes that the claims read; None if they may read any."""
        attributes: Reads = frozenset()
        for claim in {claim.record.spec_digest: claim for claim in self._claims.values()}.values():
            demand = self._demand((claim,))
            reads = None if isinstance(demand, Rejection) else reads_of(demand)
            if reads is None:
                return None
            attributes |= reads
        return None if self._extended else attributes

    def _claim_on(self, uid: str, node: Node) -> FoundClaim | None:
        """Return the claim with this UID; None if the node needs none for the extended resources."""
        member = self._extended.get(uid)
        if member is None:
            return self._claims[uid]
        need = None if member.need is None else member.need.on(node)
        return need.claim if isinstance(need, ExtendedClaimNeed) else None

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
                device.name: (published.name, device) for published in slices for device in published.devices
            }
        slice_and_device = devices.get(holding.device)
        if slice_and_device is None:
            return key
        slice_name, device = slice_and_device
        return slice_name, msgspec.json.encode(msgspec.structs.replace(device, name=""))
