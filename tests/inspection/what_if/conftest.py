"""The cluster that questions about what would happen begin with."""

import pytest

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import MadeCluster


@pytest.fixture
def made() -> MadeCluster:
    """Two nodes with a GPU each, one of which a pod has."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(device_class("gpu"))
    for node in ("n1", "n2"):
        made.gpus(node, device("gpu-0"))
    made.running("old", "n1", "gpu-0", request("gpu", "gpu"))
    return made
