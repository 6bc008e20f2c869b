import gc
import weakref

from dra_extender.allocator.state.features import Features
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.node import Node
from dra_extender.scheduling.evaluation.node_allocator import NodeAllocator
from dra_extender.scheduling.ports.options import Options

from tests.support.allocator.building import Held, claim_of, demand_of, exactly
from tests.support.ledger.ledger_events import encode, raw_node, raw_slice

_NODES = tuple(f"n{index}" for index in range(6))


def _ask(searching: NodeAllocator, node: Node) -> None:
    assert searching.survey(demand_of(claim_of(exactly(1))), node, Held())


def test_what_deleted_nodes_had_is_let_go() -> None:
    ledger = Ledger()
    for name in _NODES:
        sinks_of(ledger)["nodes"].changed(encode(raw_node(name, 1)))
        sinks_of(ledger)["resourceslices"].changed(encode(raw_slice(f"s-{name}", 1, pool=name, node=name, devices=1)))
    searching = NodeAllocator(ledger, Features(), Options())
    for name in _NODES:
        _ask(searching, ledger.nodes[name])
    gone = [weakref.ref(ledger.slices.by_name[f"s-{name}"]) for name in _NODES[2:]]
    for name in _NODES[2:]:
        sinks_of(ledger)["nodes"].deleted("", name, f"node-{name}")
        sinks_of(ledger)["resourceslices"].deleted("", f"s-{name}", f"slice-{name}")
    sinks_of(ledger)["resourceslices"].changed(encode(raw_slice("s-n0", 2, pool="n0", node="n0", devices=2)))
    _ask(searching, ledger.nodes["n0"])
    gc.collect()
    kept = [each for each in gone if each() is not None]
    assert kept == []
