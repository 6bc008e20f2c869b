"""Amounts in findings are quantities as the objects have them."""

import pytest
from dra_extender.cel.values.quantity import counter_text, parse_quantity
from dra_extender.inspection.audit.report import audit_report

from tests.controlplane import objects
from tests.support.inspection.made_cluster import MadeCluster


@pytest.mark.parametrize(
    ("total", "drawn", "text"),
    [
        pytest.param("40Gi", "30Gi", "60Gi of 40Gi drawn by mig-0, mig-1", id="memory"),
        pytest.param("14", "8", "16 of 14 drawn by mig-0, mig-1", id="units"),
        pytest.param("1500m", "1", "2 of 1500m drawn by mig-0, mig-1", id="thousandths"),
        pytest.param("10240Mi", "5632Mi", "11Gi of 10Gi drawn by mig-0, mig-1", id="canonical"),
    ],
)
def test_counters_are_named_in_their_units(total: str, drawn: str, text: str) -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(objects.device_class("gpu"))
    devices = [
        objects.device(f"mig-{index}", consumes=[objects.consumption("gpu-0", amount=drawn)]) for index in (0, 1)
    ]
    made.partitions("n1", [objects.counter_set("gpu-0", amount=total)], devices)
    for index in (0, 1):
        made.running(f"p{index}", "n1", f"mig-{index}", objects.request("r", "gpu"))
    (found,) = (each for each in audit_report(made.view()).findings if each.check == "counters")
    assert found.detail == f"counter overdrawn: amount: {text}"


@pytest.mark.parametrize("text", ["1Ki", "0", "14", "1024", "4k", "80Gi", "20Mi", "1500m", "100Ki"])
def test_size_of_a_counter_is_the_same_amount(text: str) -> None:
    assert parse_quantity(counter_text(parse_quantity(text))) == parse_quantity(text)
    assert len(counter_text(parse_quantity(text))) <= 5
