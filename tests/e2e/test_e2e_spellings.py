"""Claims whose opaque parameters and driver's data are spelled in any way are bound, shared and released, and stay as spelled."""

import json
from typing import Any, Final

import pytest
from dra_extender.kube.client.protobuf import MEDIA_TYPE, Envelope, fields, only_field
from dra_extender.model.api_json import MAX_PARAMETERS
from dra_extender.model.resource_claim import FINALIZER

from tests.controlplane import objects
from tests.controlplane.objects import device
from tests.controlplane.resources import RESOURCE_CLAIMS
from tests.support.e2e.namespace_fixture import SECONDS, NamespaceFixture
from tests.support.e2e.scenes import Scenes

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SPELLINGS: Final = (
    '{"a":1.50,"b":1e5,"c":1E30,"d":-0,"e":-0.0,"f":123456789012345678901234567890}',
    '{"a" : 1 ,\n\t"b":[ ] }',
    '{"a":"<&>\u2028"}',
    r'{"a":"\u003c\u0026\u00E9\/\ud83d\ude00"}',
    '{"a":1,"a":2,"a":1}',
    '{"\u00e9":"\U0001f600\u00df\x7f"}',
    r'{"a":"\ud800"}',
    '{"a":' + "[" * 300 + "]" * 300 + "}",
    "{}",
    '{"a":"' + "<" * (MAX_PARAMETERS - 8) + '"}',
)
_STATUS: Final = 3
_SPEC: Final = 2


async def part(scene: NamespaceFixture, name: str, number: int) -> bytes:
    """The bytes of a claim's spec or status as they are stored."""
    body = await scene.api.raw("GET", RESOURCE_CLAIMS.path(scene.name, name), accept=MEDIA_TYPE)
    claim = fields(Envelope.opened(body, RESOURCE_CLAIMS.group_version, "ResourceClaim").content)
    return only_field(claim, number).content


def claim(scene: NamespaceFixture, name: str, parameters: str) -> bytes:
    """JSON of a claim with these very parameters."""
    config = [{"opaque": {"driver": scene.driver, "parameters": "@@"}}]
    body = objects.resource_claim(name, scene.name, scene.request(), config=config)
    return json.dumps(body, separators=(",", ":")).replace('"@@"', parameters).encode()


def parameters_in(allocation: dict[str, Any]) -> Any:
    (entry,) = allocation["devices"]["config"]
    return entry["opaque"]["parameters"]


async def claims_are_bound_shared_and_released_and_stay_as_they_are_spelled(scene: NamespaceFixture) -> None:
    names = [f"claim-{index}" for index in range(len(SPELLINGS))]
    await scene.node_with_devices("a", *(device(f"gpu-{index}") for index in range(len(SPELLINGS))))
    for name, parameters in zip(names, SPELLINGS, strict=True):
        await scene.api.raw("POST", RESOURCE_CLAIMS.path(scene.name), claim(scene, name, parameters))
        assert parameters.encode() in await part(scene, name, _SPEC)
    specs = {name: await part(scene, name, _SPEC) for name in names}
    for name in names:
        await scene.pod(f"{name}.first", claim=name)
    for name in names:
        await scene.wait_until_bound(f"{name}.first")

    for name, parameters in zip(names, SPELLINGS, strict=True):
        stored = await scene.stored_claim(name)
        assert stored["metadata"]["finalizers"] == [FINALIZER]
        assert parameters_in(stored["status"]["allocation"]) == parameters_in({"devices": stored["spec"]["devices"]})
        # A driver that writes JSON cannot write beside an allocation that only just fits.
        if len(parameters) < MAX_PARAMETERS // 2:
            await say(scene, name, parameters)
    allocations = {name: await part(scene, name, _STATUS) for name in names}
    for name in names:
        await scene.pod(f"{name}.second", claim=name)
    for name in names:
        await scene.wait_until_bound(f"{name}.second")

    for name, parameters in zip(names, SPELLINGS, strict=True):
        assert await part(scene, name, _SPEC) == specs[name]
        status = await part(scene, name, _STATUS)
        kept = {field.encoded for field in fields(allocations[name])}
        assert kept <= {field.encoded for field in fields(status)}
        assert parameters.encode() in status
        await scene.delete_pod(f"{name}.first")
        await scene.delete_pod(f"{name}.second")
    await scene.wait_until_free()
    for name in names:
        assert await part(scene, name, _SPEC) == specs[name]
    # The checker reads claims with an encoder that has no halves of surrogate pairs.
    await scene.api.delete_collection(RESOURCE_CLAIMS, scene.name)

    async def gone() -> bool:
        return not await scene.api.list(RESOURCE_CLAIMS, scene.name)

    # Those that were allocated have a finalizer for a moment more.
    await scene.api.wait_for(gone, SECONDS, "all claims are gone")


async def claim_that_asks_for_nothing_is_allocated(scene: NamespaceFixture) -> None:
    """The API server spells its requests as null."""
    await scene.node("a")
    await scene.api.create(RESOURCE_CLAIMS, objects.resource_claim("empty", scene.name))
    await scene.pod("first", claim="empty")
    await scene.wait_until_bound("first")
    assert "allocation" in (await scene.stored_claim("empty"))["status"]
    await scene.delete_pod("first")


async def say(scene: NamespaceFixture, name: str, data: str) -> None:
    """What a driver says of its device, in a spelling of its own."""
    path = RESOURCE_CLAIMS.path(scene.name, name)
    stored = await scene.api.raw("GET", path)
    status = json.loads(stored)["status"]
    (result,) = status["allocation"]["devices"]["results"]
    entry = {**{field: result[field] for field in ("driver", "pool", "device")}, "data": "@@"}
    devices = json.dumps([entry]).replace('"@@"', data).encode()
    end = stored.rstrip().removesuffix(b"}}")
    assert b'"devices"' not in stored[stored.rindex(b'"reservedFor"') :]
    await scene.api.raw("PUT", f"{path}/status", end + b',"devices":' + devices + b"}}")


async def test_claims_are_allocated_and_stay_as_they_are_spelled(scenes: Scenes) -> None:
    await scenes.carry_out(
        claims_are_bound_shared_and_released_and_stay_as_they_are_spelled, claim_that_asks_for_nothing_is_allocated
    )
