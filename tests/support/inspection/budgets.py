"""PodDisruptionBudgets as an API server sends them."""

from typing import Any

from tests.controlplane.objects import Object
from tests.support.inspection.made_cluster import NAMESPACE


def budget(allowed: int, selector: Any, name: str = "keep", namespace: str = NAMESPACE) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {} if selector is None else {"selector": selector},
        "status": {"disruptionsAllowed": allowed},
    }
