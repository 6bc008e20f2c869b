"""Only the newest generation of a pool counts as published."""

from dra_extender.inspection.audit.findings import Check
from dra_extender.inspection.audit.report import audit_report

from tests.controlplane.objects import device, device_class, resource_slice
from tests.support.inspection.made_cluster import MadeCluster


def test_class_that_means_devices_of_an_older_generation_alone_is_without_devices() -> None:
    made = MadeCluster()
    made.nodes("n1")
    made.add(device_class("old", 'device.attributes["gpu.example.com"].model == "old"'))
    for generation, model in ((1, "old"), (2, "new")):
        gpu = device("gpu-0", attributes={"model": model})
        made.add(resource_slice(f"s{generation}", node="n1", devices=[gpu], generation=generation))
    (finding,) = audit_report(made.view()).findings
    assert (finding.check, finding.about) == (Check.CLASS_WITHOUT_DEVICES, "class old")
    assert finding.detail == "matches none of 1 published devices"
