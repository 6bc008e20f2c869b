"""Which DeviceClass is advised: one with a near name, one that the request's own selectors mean, or a wider one; no other."""

from typing import Any

import pytest
from dra_extender.inspection.near_names import is_slip
from dra_extender.inspection.why.why import why

from tests.controlplane.objects import device, device_class, request
from tests.support.inspection.made_cluster import NAMESPACE, MadeCluster

NIC = "nic.example.com"
MODEL = 'device.attributes["gpu.example.com"].?model.orValue("") == "A"'


@pytest.fixture
def made() -> MadeCluster:
    """A free GPU, a free partition and a free NIC, with a class of each; and classes without devices."""
    made = MadeCluster()
    made.nodes("n1", "n2")
    made.add(
        device_class(
            "gpu", 'device.driver == "gpu.example.com"', 'device.attributes["gpu.example.com"].kind == "whole"'
        ),
        device_class("nic", f'device.driver == "{NIC}"'),
        device_class("mig", 'device.driver == "gpu.example.com"', 'device.attributes["gpu.example.com"].kind == "mig"'),
        device_class("tape", 'device.driver == "tape.example.com"'),
    )
    made.gpus("n1", device("gpu-0", attributes={"kind": "whole", "model": "A"}))
    made.gpus("n2", device("nic-0"), driver=NIC)
    return made


def steps(made: MadeCluster, asked: dict[str, Any]) -> list[str]:
    made.pod("train", asked)
    return [each.text for each in why(made.view(), NAMESPACE, "train").next]


@pytest.mark.parametrize(
    ("name", "advised"),
    [
        pytest.param("mig", [], id="other-kind"),
        pytest.param("tape", ["check driver tape.example.com, which publishes no devices"], id="other-driver"),
        pytest.param("vgpu", ["create DeviceClass vgpu"], id="short-name"),
        pytest.param("gpu-large", ["create DeviceClass gpu-large"], id="longer-name"),
    ],
)
def test_free_devices_of_another_class_are_no_advice(made: MadeCluster, name: str, advised: list[str]) -> None:
    assert steps(made, request("r", name)) == advised


def test_class_is_advised_whose_devices_the_own_selectors_mean_where_those_of_the_class_cannot_be(
    made: MadeCluster,
) -> None:
    assert steps(made, request("r", "nic", MODEL)) == ["use the DeviceClass gpu (1 free device)"]


def test_class_with_most_conditions_is_advised_where_several_have_what_the_own_selectors_mean(
    made: MadeCluster,
) -> None:
    made.add(device_class("any", DRIVER), device_class("exact", DRIVER, KIND.format("whole"), MODEL))
    assert steps(made, request("r", "nic", MODEL)) == ["use the DeviceClass exact (1 free device)"]


def test_no_class_is_advised_where_the_present_one_has_devices_of_the_driver(made: MadeCluster) -> None:
    assert steps(made, request("r", "mig", MODEL)) == []


DRIVER = 'device.driver == "gpu.example.com"'
KIND = 'device.attributes["gpu.example.com"].kind == "{}"'
LARGE = 'device.attributes["gpu.example.com"].size == "large"'
SHARED = "device.allowMultipleAllocations"


@pytest.mark.parametrize(
    ("asked", "other", "advised"),
    [
        pytest.param([DRIVER, KIND.format("mig")], [DRIVER], True, id="driver"),
        pytest.param([f"{DRIVER} && {KIND.format('mig')}"], [DRIVER], True, id="joined"),
        pytest.param([KIND.format("mig"), MODEL], [DRIVER, MODEL], True, id="common-condition"),
        pytest.param(['"size" in device.attributes["gpu.example.com"]', LARGE], [DRIVER], False, id="unpublished"),
        pytest.param(
            ['"kind" in device.attributes["gpu.example.com"]', KIND.format("mig")], [DRIVER], True, id="guarded"
        ),
        pytest.param([DRIVER, KIND.format("mig")], [DRIVER, KIND.format("whole")], False, id="contradiction"),
        pytest.param([DRIVER, KIND.format("mig")], ["true"], False, id="any-driver"),
        pytest.param([DRIVER, SHARED, KIND.format("mig")], [DRIVER, f"!{SHARED}"], False, id="not-shared"),
        pytest.param([DRIVER, KIND.format("mig")], [f"{DRIVER} &&"], False, id="invalid"),
    ],
)
def test_class_is_advised_that_leaves_open_what_no_device_has(
    made: MadeCluster, asked: list[str], other: list[str], *, advised: bool
) -> None:
    made.objects["deviceclasses"] = [device_class("asked", *asked), device_class("other", *other)]
    expected = "use the DeviceClass other (1 free device)"
    assert (expected in steps(made, request("r", "asked"))) is advised


def test_class_is_advised_that_shares_most_with_the_present_one(made: MadeCluster) -> None:
    made.objects["deviceclasses"] = [
        device_class("asked", DRIVER, KIND.format("mig"), MODEL),
        device_class("any", DRIVER),
        device_class("model", DRIVER, MODEL),
    ]
    made.gpus("n2", device("gpu-1", attributes={"kind": "whole", "model": "B"}))
    assert steps(made, request("r", "asked")) == ["use the DeviceClass model (1 free device)"]


def test_class_whose_devices_are_in_use_is_not_advised(made: MadeCluster) -> None:
    made.objects["deviceclasses"] = [device_class("asked", DRIVER, KIND.format("mig")), device_class("any", DRIVER)]
    made.running("old", "n1", "gpu-0", request("r", "any"))
    assert steps(made, request("r", "asked")) == []


def test_no_trial_is_spent_on_classes_that_are_not_meant(made: MadeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_extender.inspection.why.trials.MOST_TRIALS", 1)
    made.add(*(device_class(f"any-{number}") for number in range(9)))
    made.pod("train", request("r", "tape"))
    assert not [each for each in why(made.view(), NAMESPACE, "train").notes if "limit" in each]


@pytest.mark.parametrize(
    ("written", "name", "expected"),
    [
        ("gpu.example.co", "gpu.example.com", True),
        ("nvidia-gpuu", "nvidia-gpu", True),
        ("nvida-gpu", "nvidia-gpu", True),
        ("nvidai-gpu", "nvidia-gpu", True),
        ("largegpu", "large-gpu", True),
        ("gpu-a100.example.com", "gpua100.example.com", True),
        ("gup", "gpu", True),
        ("example.com/gup", "example.com/gpu", True),
        ("example.com/gpus", "example.com/gpu", True),
        ("gpus", "gpu", True),
        ("gpuu", "gpu", True),
        ("gppu-large", "gpu-large", True),
        ("gpu", "gpuss", False),
        ("gpu", "ugpu", False),
        ("gpu", "gps", False),
        ("gpp", "gpu", False),
        ("spu", "gpu", False),
        ("ib", "ibs", False),
        ("example.com/gpu", "other.com/gpu", False),
        ("gpu", "upg", False),
        ("orange", "purple", False),
        ("training-gpu", "inferring-gpu", False),
        ("accelerator", "accelerotar", False),
        ("nvidia-gpu", "nvibia-gpu", True),
        ("gpu", "vgpu", False),
        ("fabric-gpu", "fabric-cpu", False),
        ("my-vgpu", "my-gpu", False),
        ("mig-1g", "mig-3g", False),
        ("nvidia-a10", "nvidia-a10g", False),
        ("nvidia-a10", "nvidia-a100", False),
        ("gpu", "gpu-large", False),
        ("gpu", "gpu", False),
    ],
)
def test_slips_are_told_from_other_names(written: str, name: str, expected: bool) -> None:
    assert (is_slip(written, name), is_slip(name, written)) == (expected, expected)
