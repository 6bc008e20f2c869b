"""The examples are what a real API server accepts, so that people can apply them to a cluster of their own."""

import asyncio
from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane, KubectlError
from tests.support.side_by_side import side_by_side

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "examples").glob("*.yaml"))
WRONG = "07-things-that-are-wrong"


def documents_in(path: Path) -> int:
    return path.read_text().count("\n---\n") + 1


async def test_kubectl_applies_every_example_but_the_selector_that_does_not_compile(cluster: ControlPlane) -> None:
    async def applies(path: Path) -> None:
        asked = ("apply", "--dry-run=server", "-f", str(path))
        if path.stem == WRONG:
            with pytest.raises(KubectlError) as caught:
                await asyncio.to_thread(cluster.kubectl, *asked)
            (refusal,) = (line for line in str(caught.value).splitlines() if "is invalid" in line)
            assert 'ResourceClaim "does-not-compile" is invalid' in refusal
            return
        applied = (await asyncio.to_thread(cluster.kubectl, *asked)).splitlines()
        assert len(applied) == documents_in(path)
        assert all("(server dry run)" in line for line in applied)

    assert WRONG in {path.stem for path in EXAMPLES}
    await side_by_side({path.stem: applies(path) for path in EXAMPLES})
