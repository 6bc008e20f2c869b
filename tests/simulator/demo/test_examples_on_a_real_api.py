"""The examples are what a real API server accepts, so that people can apply them to a cluster of their own."""

from pathlib import Path

import pytest

from tests.controlplane.cluster import ControlPlane, KubectlError

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

EXAMPLES = sorted((Path(__file__).parents[3] / "deploy" / "examples").glob("*.yaml"))
WRONG = "07-things-that-are-wrong"


def documents_in(path: Path) -> int:
    return path.read_text().count("\n---\n") + 1


@pytest.mark.parametrize("path", [path for path in EXAMPLES if path.stem != WRONG], ids=lambda path: path.stem)
async def test_kubectl_applies_the_example(cluster: ControlPlane, path: Path) -> None:
    applied = cluster.kubectl("apply", "--dry-run=server", "-f", str(path)).splitlines()
    assert len(applied) == documents_in(path)
    assert all("(server dry run)" in line for line in applied)


async def test_only_the_selector_that_does_not_compile_is_refused(cluster: ControlPlane) -> None:
    (path,) = (path for path in EXAMPLES if path.stem == WRONG)
    with pytest.raises(KubectlError) as caught:
        cluster.kubectl("apply", "--dry-run=server", "-f", str(path))
    refusals = [line for line in str(caught.value).splitlines() if "is invalid" in line]
    assert len(refusals) == 1
    assert 'ResourceClaim "does-not-compile" is invalid' in refusals[0]
