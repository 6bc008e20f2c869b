"""Our allocator as the filter uses it, beside the ledger that events keep, without the rest of the service."""

import gc
import hashlib
import json
import math
from collections.abc import Sequence
from time import perf_counter, process_time
from typing import Final, NamedTuple

from dra_extender.allocator.demand.demand import Demand
from dra_extender.allocator.state.features import Features
from dra_extender.cel.program import ProgramCache
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.resource_claim import ConsumerReference
from dra_extender.runtime.clock import SystemClock
from dra_extender.scheduling.call_budget import CallBudget
from dra_extender.scheduling.claims.lookup import FoundClaim
from dra_extender.scheduling.evaluation.evaluator import NodeEvaluator
from dra_extender.scheduling.evaluation.filter_result import FilterResult
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.evaluation.node_equivalence import NodeEquivalence
from dra_extender.scheduling.evaluation.node_results import NodeResults
from dra_extender.scheduling.ports.options import Options
from dra_extender.telemetry.metrics import Metrics

from tests.bench.allocator_cluster import NAMESPACE, Cluster, allocated_claim
from tests.bench.rows import BenchError

_POD: Final = ConsumerReference(resource="pods", name="pod", uid="pod")
_REMEMBERED: Final = 200_000
_STRIDE: Final = 7919


class OurTime(NamedTuple):
    """Seconds by the clock and of the processor, and what was found."""

    seconds: float
    processor: float
    evaluation: FilterResult


class Ours:
    """A ledger that has seen all objects of a cluster, and the question about its pod."""

    def __init__(self, cluster: Cluster) -> None:
        """Let the ledger read the objects, as watch events bring them."""
        self._ledger = Ledger()
        self._names = cluster.names
        self._wanted = [each["metadata"]["name"] for each in cluster.claims]
        self._last = {each["spec"]["nodeName"]: each["spec"]["devices"][-1]["name"] for each in cluster.local_slices}
        self._changes = 0
        gc.disable()
        for kind, objects in cluster.objects.items():
            for each in objects:
                sinks_of(self._ledger)[kind].changed(json.dumps(each).encode())
        # As the service does once it has read everything; it never collects by itself after that.
        gc.collect()
        gc.freeze()
        self.start()

    def close(self) -> None:
        """Let go of what was read."""
        gc.unfreeze()
        gc.enable()

    def start(self) -> None:
        """As after a start: the ledger has all objects, and nobody has asked anything yet."""
        self._programs = ProgramCache(emulate=Options().selector_libraries)
        self._equivalence = NodeEquivalence(self._ledger, Features())
        self._begin()

    def forget(self) -> None:
        """No pod like this one was ever asked for; what is kept of nodes, whatever the pods, is there.

        Compiled expressions are there, too, as upstream keeps them between the rounds.
        """
        self._equivalence = NodeEquivalence(self._ledger, Features())
        for node in self._ledger.nodes.values():
            inventory = self._equivalence.inventory(node)
            if inventory is not None:
                self._equivalence.class_of(node, inventory, None)
        self._begin()

    def _begin(self) -> None:
        self._searching = NodeAllocator(self._ledger, Features(), Options())
        self._searching._programs = self._programs
        metrics = Metrics()
        results = NodeResults(self._ledger, self._searching, metrics, _REMEMBERED, self._equivalence)
        self._evaluator = NodeEvaluator(self._ledger, metrics, results, None)

    def ask(self) -> "OurTime":
        """One pod over all nodes."""
        gc.collect()
        result = FilterResult()
        begin, begin_processor = perf_counter(), process_time()
        names, budget = self._names, CallBudget(SystemClock(), math.inf)
        self._evaluator.evaluate_nodes("", self._demand(), names, len(names) + 1, budget, result)
        return OurTime(perf_counter() - begin, process_time() - begin_processor, result)

    def after_a_change(self) -> float:
        """Seconds for one pod, after somebody took the last device of some node, or gave it back."""
        self._change(self._changes)
        self._changes += 1
        return self.ask().seconds

    def calm(self) -> None:
        """Give back what was taken last."""
        if self._changes % 2:
            self._change(self._changes)
            self._changes += 1

    def _change(self, number: int) -> None:
        name = self._names[(number // 2 * _STRIDE) % len(self._names)]
        taken = allocated_claim(-1, name, [self._last[name]])
        feed = sinks_of(self._ledger)["resourceclaims"]
        if number % 2:
            feed.deleted(NAMESPACE, taken["metadata"]["name"], taken["metadata"]["uid"])
        else:
            feed.changed(json.dumps(taken).encode())

    def _demand(self) -> Demand:
        found = []
        for name in self._wanted:
            record = self._ledger.claims.by_key(NAMESPACE, name)
            if record is None:
                raise BenchError(f"claim {name} was lost")
            found.append(FoundClaim(name, record, _POD))
        demand = self._searching.demand(found)
        if not isinstance(demand, Demand):
            raise BenchError(f"the claims cannot be asked for: {demand}")
        return demand


def decisions(evaluation: FilterResult, names: Sequence[str]) -> str:
    """A digest of every device that was found on every node."""
    digest = hashlib.sha256()
    for name in names:
        result = evaluation.fits.get(name)
        if result is None or result.placement is None:
            continue
        for claim in result.placement.claims:
            for each in claim.allocation.devices.results:
                digest.update(f"{name} {each.driver}/{each.pool}/{each.device}\n".encode())
    return digest.hexdigest()
