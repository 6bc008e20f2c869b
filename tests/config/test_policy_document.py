"""docs/concepts/policy.md says what the program does: its example is a policy that works, and it names every field."""

import re
from pathlib import Path

from dra_extender.allocator.overlay.policy import PolicyOverlay
from dra_extender.config.policy_file import RuleModel, read_policy
from dra_extender.model.device import Device

from tests.support.allocator.building import Json, ask, claim_of, exactly, held, picks, slice_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "concepts" / "policy.md"


def example(tmp_path: Path) -> PolicyOverlay:
    (text,) = re.findall(r"```yaml\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    file = tmp_path / "policy.yaml"
    file.write_text(text)
    return read_policy(file)


def typed(name: str, kind: str, parent: str) -> Json:
    return {"name": name, "attributes": {"type": {"string": kind}, "parentUUID": {"string": parent}}}


def test_the_example_keeps_mig_and_vgpu_apart_without_counters(tmp_path: Path) -> None:
    published = slice_of(typed("m", "mig", "1"), typed("v1", "vgpu", "1"), typed("v2", "vgpu", "2"))
    overlaid = example(tmp_path).apply(published)
    assert overlaid.problems == ()
    wanted = claim_of(exactly(expression='device.attributes["gpu.example.com"].type == "vgpu"'))
    assert picks(ask([overlaid.effective], wanted, usage=[held("m")])) == [["v2"]]


def test_the_example_lets_fractions_and_mps_be_neighbours(tmp_path: Path) -> None:
    modes = {"f": "GPUFractioning", "s": "MPSSharing", "m": "MIGSlicing"}
    devices = [{"name": name, "attributes": {"mode": {"string": mode}}} for name, mode in modes.items()]
    found = named(tmp_path, *devices, driver="shared.example.com")
    assert {name for name, device in found.items() if device.compatible_only_with is not None} == {"f", "s"}
    assert dict(found["f"].sources) == {"compatibleOnlyWith": "software"}


def test_the_example_waits_for_devices_of_one_pool_of_the_fabric(tmp_path: Path) -> None:
    for pool, waits in (("rack-7", True), ("rack-8", False)):
        device = named(tmp_path, {"name": "d"}, driver="fabric.example.com", pool=pool)["d"]
        assert (device.binding_conditions == ("fabric.example.com/attached",)) is waits
        assert device.binds_to_node is waits


def named(tmp_path: Path, *devices: Json, **spec: str) -> dict[str, Device]:
    overlaid = example(tmp_path).apply(slice_of(*devices, **spec))
    return {device.name: device for device in overlaid.effective.devices}


def test_the_table_of_fields_is_complete() -> None:
    table = re.search(r"\| field \| what it is \|\n\|---\|---\|\n((?:\|.*\n)+)", DOCUMENT.read_text())
    assert table is not None
    told = re.findall(r"^\| `(\w+)` \|", table.group(1), re.MULTILINE)
    assert sorted(told) == sorted(field.alias for field in RuleModel.model_fields.values() if field.alias)
