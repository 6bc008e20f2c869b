"""Which nodes kube-scheduler's own filters are asked about, for tests of how many there are in one turn of the event loop."""

from typing import Any

import pytest
from dra_extender.nodefit.node_fit import FitNode


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that were compared with a pod."""
    names: list[str] = []
    refusals = FitNode.refusals

    def noted(node: FitNode, *args: Any) -> Any:
        names.append(node.name)
        return refusals(node, *args)

    monkeypatch.setattr(FitNode, "refusals", noted)
    return names
