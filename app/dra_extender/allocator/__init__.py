"""The allocator: which devices serve the claims of a pod on a node, or why none do.

    prepare   claims and classes -> Demand, valid on every node (or a Rejection)
    gather    slices -> NodePools, what a node can use
    allocate  Demand, NodePools and what is taken -> Placement or NoFit
    survey    the same -> a full account of every request's devices, for people

Pure: no clock, no I/O, no randomness.  Decisions are those of upstream's structured allocator (Kubernetes 1.37), first
solution in the same order.
"""

from dra_extender.allocator.allocate import Allocation as Allocation
from dra_extender.allocator.allocate import allocate as allocate
from dra_extender.allocator.demand.demand import ClaimDemand as ClaimDemand
from dra_extender.allocator.demand.demand import Demand as Demand
from dra_extender.allocator.demand.demand import NamedClaim as NamedClaim
from dra_extender.allocator.demand.selectors import SelectorVerdicts as SelectorVerdicts
from dra_extender.allocator.demand.validate import prepare as prepare
from dra_extender.allocator.explain.survey import Refused as Refused
from dra_extender.allocator.explain.survey import RequestSurvey as RequestSurvey
from dra_extender.allocator.explain.survey import survey as survey
from dra_extender.allocator.pools.pools import NodePools as NodePools
from dra_extender.allocator.pools.pools import gather as gather
from dra_extender.allocator.state.features import Features as Features
from dra_extender.allocator.state.result import NoFit as NoFit
from dra_extender.allocator.state.result import Paused as Paused
from dra_extender.allocator.state.usage import PoolId as PoolId
from dra_extender.allocator.state.usage import PoolUsage as PoolUsage
from dra_extender.allocator.state.usage import Usage as Usage
