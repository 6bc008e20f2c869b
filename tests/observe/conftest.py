"""Fixtures of `make observe`: a world as the end-to-end tests have it, and a real Prometheus that scrapes its extender."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.chart.programs import Helm
from tests.controlplane.build import CONTROL_PLANE, HELM, PROMETHEUS, ensure, pinned
from tests.e2e.conftest import pytest_runtest_makereport, scene, world
from tests.observe.prometheus import Prometheus
from tests.support.e2e.installed_extender import InstalledExtender, Setup

__all__ = ["pytest_runtest_makereport", "scene", "world"]


@pytest.fixture(scope="module")
def setup() -> Setup:
    """Devices are counted, and an audit is made, each second; pods get the first devices that fit."""
    each_second = ("METRICS__DEVICES_INTERVAL_SECONDS", "AUDIT__INTERVAL_SECONDS")
    environment = {f"DRA_EXTENDER_{name}": "1" for name in each_second}
    return Setup(environment={**environment, "DRA_EXTENDER_SCHEDULING__PLACEMENT": "upstream"})


@pytest.fixture(scope="session")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    version = pinned((CONTROL_PLANE.module / "go.mod").read_text(), "k8s.io/kubernetes")
    return Helm(ensure(HELM) / "helm", tmp_path_factory.mktemp("helm"), version)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def prometheus(
    world: InstalledExtender, helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Prometheus]:
    """Scrapes the extender each second, and evaluates the rules of the chart."""
    rules = helm.template(
        "--api-versions",
        "monitoring.coreos.com/v1",
        "--show-only",
        "templates/prometheus-rule.yaml",
        # One call of the dozen that a test makes is its 99th percentile: however slow the machine is, no such call counts as slow.
        values={"prometheusRule": {"enabled": True, "thresholds": {"filterSeconds": 5}}},
    )
    folder: Path = tmp_path_factory.mktemp("prometheus")
    async with Prometheus(ensure(PROMETHEUS) / "prometheus", folder, world.extender.port, rules[0]["spec"]) as started:
        yield started
