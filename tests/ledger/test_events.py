import pytest
from dra_extender.ledger.events import LedgerEvents, NodeRemoved, PodResolved


def test_a_handler_gets_the_events_of_its_kind_in_order() -> None:
    events, nodes, pods = LedgerEvents(), list[str](), list[str]()
    events.subscribe(NodeRemoved, lambda event: nodes.append(event.node))
    events.subscribe(PodResolved, lambda event: pods.append(event.pod_uid))
    for event in (NodeRemoved("n1"), PodResolved("p1"), NodeRemoved("n2")):
        events.publish(event)
    assert (nodes, pods) == (["n1", "n2"], ["p1"])


def test_a_closed_subscription_gets_nothing_and_leaves_the_others_alone() -> None:
    events, first, second = LedgerEvents(), list[NodeRemoved](), list[NodeRemoved]()
    closed = events.subscribe(NodeRemoved, first.append)
    events.subscribe(NodeRemoved, second.append)
    closed.close()
    closed.close()
    events.publish(NodeRemoved("n1"))
    assert (first, second) == ([], [NodeRemoved("n1")])


def test_an_error_of_one_handler_reaches_the_publisher_after_all_others_were_called() -> None:
    events, seen = LedgerEvents(), list[NodeRemoved]()

    def failing(_: NodeRemoved) -> None:
        raise ValueError("first")

    def failing_later(_: NodeRemoved) -> None:
        raise KeyError("second")

    events.subscribe(NodeRemoved, failing)
    events.subscribe(NodeRemoved, failing_later)
    events.subscribe(NodeRemoved, seen.append)
    with pytest.raises(ValueError, match="first"):
        events.publish(NodeRemoved("n1"))
    assert seen == [NodeRemoved("n1")]
