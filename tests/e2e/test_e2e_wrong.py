"""What is wrong is said in words on the pod it is about, holds up nobody else, and heals when it is put right."""

import pytest

from tests.controlplane.objects import device, device_class, resource_claim
from tests.controlplane.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import PROMPT_SECONDS, NamespaceFixture, refusal

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]


async def test_pod_without_claims_is_bound(scene: NamespaceFixture) -> None:
    node = await scene.node("a")
    await scene.pod("plain")
    assert await scene.wait_until_bound("plain") == node


async def test_each_wrong_pod_is_told_why_and_the_right_one_beside_them_is_bound(scene: NamespaceFixture) -> None:
    devices = (device(f"gpu-{index}", attributes={"type": kind}) for index, kind in enumerate(("mig", "whole")))
    node = await scene.node_with_devices("a", *devices)
    await scene.claim("no-class", device_class=f"{scene.name}-absent")
    # Compiles, as an attribute may be of any type; but none has fields. The KEP's examples are written like this.
    await scene.claim("suffix", f'{scene.attribute("type")}.string == "mig"')
    await scene.claim("elsewhere", f'{scene.attribute("type")} == "vgpu"')
    await scene.claim("right", f'{scene.attribute("type")} == "mig"')
    for name in ("absent", "no-class", "suffix", "elsewhere", "right"):
        await scene.pod(name, claim=name)
    assert await scene.wait_until_bound("right") == node
    expected = {
        "absent": ('claim "gpu" does not exist', f"{scene.name}/absent"),
        "no-class": ('claim "gpu", request "gpu": device class does not exist', f"{scene.name}-absent"),
        "suffix": ('claim "gpu", request "gpu": selector failed on a device', ".string"),
        "elsewhere": ('claim "gpu", request "gpu": no device matches the selectors', f"class {scene.name}"),
    }
    for name, (short, detail) in expected.items():
        message = await scene.wait_until_unschedulable(name, short)
        assert message.startswith(f"0/1 nodes are available: 1 node(s): {short}.")
        assert detail not in message or name == "no-class"
        note = await scene.wait_for_event(name, short, detail)
        assert note.endswith(f". More: kubectl dra why {name} -n {scene.name}")


async def test_selector_that_does_not_compile_is_not_even_stored(scene: NamespaceFixture) -> None:
    broken = resource_claim("broken", scene.name, scene.request("device.nonsense == 1"))
    refused = await refusal(scene.api, RESOURCE_CLAIMS, broken)
    assert (refused.status, refused.reason) == (422, "Invalid")
    assert "undefined field 'nonsense'" in refused.message


async def test_missing_claim_and_class_get_their_pods_bound_when_they_appear(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"), device("gpu-1"))
    await scene.pod("claimless", claim="late")
    await scene.claim("classless", device_class=f"{scene.name}-late")
    await scene.pod("classless", claim="classless")
    await scene.wait_until_unschedulable("claimless", 'claim "gpu" does not exist')
    await scene.wait_until_unschedulable("classless", "device class does not exist")
    await scene.claim("late")
    assert await scene.wait_until_bound("claimless", PROMPT_SECONDS) == node
    late = device_class(f"{scene.name}-late", f'device.driver == "{scene.driver}"')
    await scene.api.create(DEVICE_CLASSES, late)
    assert await scene.wait_until_bound("classless", PROMPT_SECONDS) == node


async def test_class_that_is_deleted_while_a_pod_waits_is_missed_until_it_is_back(scene: NamespaceFixture) -> None:
    node = await scene.node_with_devices("a", device("gpu-0"))
    await scene.template("one")
    await scene.pod("first", template="one")
    await scene.wait_until_bound("first")
    await scene.pod("second", template="one")
    await scene.wait_until_unschedulable("second", "matching devices are in use")
    await scene.api.delete(DEVICE_CLASSES, scene.name)
    await scene.wait_until_unschedulable("second", "device class does not exist", again=True)
    await scene.delete_pod("first")
    await scene.wait_until_free()
    await scene.api.create(DEVICE_CLASSES, scene.device_class())
    assert await scene.wait_until_bound("second", PROMPT_SECONDS) == node
