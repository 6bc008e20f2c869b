from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured.

    `calls`: filter calls in a round.  `filter_rounds`, `runs`, `loads`: rounds of the areas filter, throughput and memory.
    `repeats`: how often at most a run is repeated because others used the machine meanwhile.
    `allocator_rounds`: rounds of that area, fewer where upstream's take long.
    `filter_nodes`, `throughput_nodes`, `allocator_nodes`: cluster sizes.
    `slow_pods`: pods of the binding area that wait for a device in one run; `waiting`: binds that wait at once; `woken`: pods that
    wait for a slice.
    `group`: pods of the one PodGroup; `groups`, `gangs`: how many, and pods in each; `group_runs`: rounds of the area workloads.
    `slices`: of devices, in the large and the small cluster of the memory area.
    `see_nodes`: nodes in the snapshot of the area see.  `what_if_nodes`: nodes of its questions what would happen.
    `cel_rounds`, `cel_seconds`: rounds of the area cel, and how long each expression is asked in one; `cel_programs`: cached ones;
    `hostile_rounds`: how often each hostile expression is asked; `hostile_step`: 1 for all of them, 6 for each sixth.
    """

    calls: int = 100
    filter_rounds: int = 7
    filter_nodes: tuple[int, ...] = (500, 5_000)
    runs: int = 3
    repeats: int = 2
    throughput_nodes: tuple[int, ...] = (200, 1_000)
    pods: int = 1_000
    loads: int = 2
    slices: tuple[int, int] = (5_000, 1_250)
    see_nodes: int = 5_000
    what_if_nodes: int = 1_000
    slow_pods: int = 40
    waiting: int = 2_000
    woken: int = 10
    allocator_nodes: tuple[int, ...] = (500, 1_000, 5_000)
    allocator_rounds: int = 3
    group_runs: int = 2
    group: int = 1_000
    groups: tuple[int, int] = (100, 50)
    gangs: tuple[int, int] = (20, 10)
    cel_rounds: int = 3
    cel_seconds: float = 0.25
    cel_programs: int = 4096
    hostile_rounds: int = 3
    hostile_step: int = 1


FULL = Scale()
QUICK = Scale(
    calls=20,
    filter_rounds=2,
    filter_nodes=(50, 200),
    runs=1,
    repeats=0,
    throughput_nodes=(50,),
    pods=200,
    loads=1,
    slices=(400, 100),
    see_nodes=100,
    what_if_nodes=50,
    slow_pods=10,
    waiting=100,
    woken=2,
    allocator_nodes=(50,),
    allocator_rounds=2,
    group_runs=1,
    group=300,
    groups=(10, 20),
    gangs=(5, 5),
    cel_rounds=1,
    cel_seconds=0.02,
    cel_programs=256,
    hostile_rounds=1,
    hostile_step=6,
)
