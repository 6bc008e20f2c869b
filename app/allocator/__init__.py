"""The allocator: which devices serve the claims of a pod on a node, or why none do.

    prepare   claims and classes -> Demand, valid on every node (or a Rejection)
    gather    slices -> NodePools, what a node can use
    allocate  Demand, NodePools and what is taken -> Placement or NoFit
    survey    the same -> a full account of every request's devices, for people

Pure: no clock, no I/O, no randomness.  Decisions are those of upstream's structured allocator (Kubernetes 1.37), first
solution in the same order.
"""

from app.allocator.allocate import Allocation as Allocation
from app.allocator.allocate import allocate as allocate
from app.allocator.demand import ClaimDemand as ClaimDemand
from app.allocator.demand import Demand as Demand
from app.allocator.demand import NamedClaim as NamedClaim
from app.allocator.features import Features as Features
from app.allocator.outcome import NoFit as NoFit
from app.allocator.outcome import Paused as Paused
from app.allocator.pools import NodePools as NodePools
from app.allocator.pools import gather as gather
from app.allocator.requests import prepare as prepare
from app.allocator.selectors import SelectorVerdicts as SelectorVerdicts
from app.allocator.state import PoolId as PoolId
from app.allocator.state import PoolUsage as PoolUsage
from app.allocator.state import Usage as Usage
from app.allocator.survey import Refused as Refused
from app.allocator.survey import RequestSurvey as RequestSurvey
from app.allocator.survey import survey as survey
