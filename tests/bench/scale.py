from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from tests.controlplane.cluster import ControlPlane


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """What the area tenants schedules: `nodes`, the victim's `steady` pods at `per_second`, then `burst` pods at once.

    `seconds` is how long each of the two parts may take after its last pod was created. `settle_seconds`: how long everything is
    quiet before; `head_start_seconds`: how long the attacker is alone.
    """

    nodes: int = 50
    steady: int = 150
    per_second: float = 8.0
    burst: int = 250
    seconds: float = 90.0
    settle_seconds: float = 3.0
    head_start_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    `plane`: the control plane of a run, without objects, in this folder; each run has one of its own where figures are to count.
    `settle_seconds`: how long it is quiet before the scheduler starts.
    `calls`: filter calls in a round.  `filter_rounds`, `runs`, `loads`: rounds of the areas filter, throughput and memory.
    `peers`: contenders beside ours at most, and `claim_loads`: queues of the area claims without groups.
    `repeats`: how often at most a run is repeated because others used the machine meanwhile.
    `allocator_rounds`: rounds of that area, fewer where upstream's take long; `blow_up_seconds`: when upstream's is stopped;
    `growth`: how many times as large the larger cluster is at most.
    `filter_nodes`, `throughput_nodes`, `allocator_nodes`: cluster sizes.
    `slow_pods`: pods of the binding area that wait for a device in one run, which becomes ready within `spread_seconds`;
    `waiting`: binds that wait at once; `woken`: pods that wait for a slice.
    `group`: pods of the one PodGroup; `groups`, `gangs`: how many, and pods in each; `group_runs`: rounds of the area workloads.
    `slices`: of devices, in the large and the small cluster of the memory area; `clusters`: nodes of its clusters with claims.
    `see_nodes`: nodes in the snapshot of the area see.  `what_if_nodes`: nodes of its questions what would happen.
    `cel_rounds`, `cel_seconds`: rounds of the area cel, and how long each expression is asked in one; `cel_programs`: cached ones;
    `hostile_rounds`: how often each hostile expression is asked; `hostile_step`: 1 for all of them, 6 for each sixth.
    `attacks`: of the area tenants, and `large_claims`.  `attempts`: of the area tracing.
    `fits_seeds`: rounds of the area fits, on each `fits_step`-th node of the trace; `mig_gpus`, `mig_events`: of its partitions;
    `scheduled_nodes`: of its run through kube-scheduler.
    """

    plane: Callable[[Path], AbstractAsyncContextManager[ControlPlane]] = ControlPlane.start
    settle_seconds: float = 2.0
    calls: int = 100
    filter_rounds: int = 7
    filter_nodes: tuple[int, ...] = (500, 5_000)
    runs: int = 3
    peers: int = 4
    claim_loads: int = 5
    repeats: int = 2
    throughput_nodes: tuple[int, ...] = (200, 1_000)
    pods: int = 1_000
    loads: int = 2
    slices: tuple[int, int] = (5_000, 1_250)
    clusters: tuple[int, ...] = (100, 1_000, 5_000)
    see_nodes: int = 5_000
    what_if_nodes: int = 1_000
    slow_pods: int = 40
    spread_seconds: float = 6.0
    waiting: int = 2_000
    woken: int = 10
    allocator_nodes: tuple[int, ...] = (500, 1_000, 5_000)
    allocator_rounds: int = 3
    blow_up_seconds: float = 10.0
    growth: int = 8
    group_runs: int = 2
    group: int = 1_000
    groups: tuple[int, int] = (100, 50)
    gangs: tuple[int, int] = (20, 10)
    cel_rounds: int = 3
    cel_seconds: float = 0.25
    cel_programs: int = 4096
    hostile_rounds: int = 3
    hostile_step: int = 1
    tenants: TenantLoad = TenantLoad()
    attacks: int = 3
    large_claims: int = 5_000
    attempts: int = 300
    fits_seeds: int = 10
    fits_step: int = 1
    mig_gpus: int = 128
    mig_events: int = 10_000
    scheduled_nodes: int = 200


FULL = Scale()
QUICK = Scale(
    settle_seconds=0.0,
    calls=20,
    filter_rounds=1,
    filter_nodes=(50,),
    runs=1,
    peers=1,
    claim_loads=1,
    repeats=0,
    throughput_nodes=(10,),
    pods=40,
    loads=1,
    slices=(200, 50),
    clusters=(50,),
    see_nodes=50,
    what_if_nodes=20,
    slow_pods=4,
    spread_seconds=1.0,
    waiting=20,
    woken=1,
    allocator_nodes=(20,),
    allocator_rounds=1,
    blow_up_seconds=0.5,
    growth=2,
    group_runs=1,
    group=40,
    groups=(4, 5),
    gangs=(3, 4),
    cel_rounds=1,
    cel_seconds=0.01,
    cel_programs=64,
    hostile_rounds=1,
    hostile_step=24,
    tenants=TenantLoad(
        nodes=4, steady=8, per_second=8.0, burst=20, seconds=5.0, settle_seconds=0.5, head_start_seconds=1.0
    ),
    attacks=1,
    large_claims=50,
    attempts=20,
    fits_seeds=1,
    fits_step=60,
    mig_gpus=16,
    mig_events=400,
    scheduled_nodes=8,
)
