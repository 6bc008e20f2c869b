"""What lint refuses a real API server refuses, and what it accepts is accepted: each of a table of objects.

The gates of the fields that lint knows are on; with a gate off, an API server drops the field or refuses it.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

import pytest

from tests.controlplane.apierror import ApiError
from tests.controlplane.cluster import ControlPlane
from tests.controlplane.planes import LATER_GATES
from tests.controlplane.resources import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from tests.support.validated_objects import ValidatedObject, all_objects

pytestmark = [pytest.mark.e2e, pytest.mark.plane(LATER_GATES), pytest.mark.asyncio(loop_scope="module")]

RESOURCES: Final[Mapping[str, Resource]] = {
    "ResourceSlice": RESOURCE_SLICES,
    "ResourceClaim": RESOURCE_CLAIMS,
    "ResourceClaimTemplate": RESOURCE_CLAIM_TEMPLATES,
    "DeviceClass": DEVICE_CLASSES,
    "DeviceTaintRule": DEVICE_TAINT_RULES,
}
AT_ONCE: Final = 10
UNREADABLE_OR_INVALID: Final = (400, 422)


async def refusal(cluster: ControlPlane, case: ValidatedObject) -> str:
    """Why the API server refuses the object; empty if it accepts it.  Nothing is stored."""
    try:
        await cluster.api.create(RESOURCES[case.thing["kind"]], case.thing, dryRun="All", fieldValidation="Strict")
    except ApiError as problem:
        if problem.status in UNREADABLE_OR_INVALID:
            return str(problem)
        raise
    return ""


async def test_api_server_refuses_what_lint_refuses_and_accepts_what_it_accepts(cluster: ControlPlane) -> None:
    """`tests/lint/test_objects.py` asks lint about the same objects."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def asked(case: ValidatedObject) -> str:
        async with gate:
            return await refusal(cluster, case)

    cases = all_objects()
    answers = await asyncio.gather(*map(asked, cases))
    wrong = [
        f"{case.name}: {answer or 'accepted'}"
        for case, answer in zip(cases, answers, strict=True)
        if bool(answer) is not case.refused
    ]
    assert wrong == []
