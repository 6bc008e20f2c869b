"""docs/start/laptop.md: the chart with its values, and its pods on a real API server."""

import pytest
import yaml

from tests.chart.programs import REPOSITORY, Helm
from tests.chart.selecting import containers, only
from tests.controlplane.cluster import ControlPlane

FOLDER = REPOSITORY / "deploy" / "laptop"


@pytest.mark.chart
def test_one_replica_runs_the_image_that_kind_has_loaded(helm: Helm) -> None:
    rendered = helm.template(values=yaml.safe_load((FOLDER / "values.yaml").read_text()))
    assert only(rendered, "Deployment")["spec"]["replicas"] == 1
    assert containers(rendered)["extender"]["image"] == "dra-extender:laptop"


@pytest.mark.e2e
@pytest.mark.asyncio(loop_scope="module")
async def test_an_api_server_takes_the_pods(cluster: ControlPlane) -> None:
    taken = cluster.kubectl("apply", "--dry-run=server", "-f", str(FOLDER / "pods.yaml"))
    assert taken.count("created") == 3
