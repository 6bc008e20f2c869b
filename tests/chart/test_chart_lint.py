import os
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.chart.programs import CHART, REPOSITORY, Helm, Object, run

pytestmark = pytest.mark.chart

EXTENDER_ONLY: Object = {
    "mode": "extenderOnly",
    "networkPolicy": {"schedulerFrom": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]},
}


def test_lint_of_a_chart_whose_cluster_nobody_named_finds_no_broken_yaml(helm: Helm) -> None:
    """helm lint goes on where a template refuses its values."""
    done = run(helm.program, "lint", CHART, environment={"KUBECONFIG": os.devnull})
    assert (done.code, "[ERROR]" in done.output) == (0, False), done.output


@pytest.mark.parametrize("values", [{}, EXTENDER_ONLY], ids=["secondScheduler", "extenderOnly"])
def test_lint_has_nothing_to_say(helm: Helm, values: Object) -> None:
    done = helm.run("lint", "--strict", values=values)
    assert done.code == 0, done.output + done.words
    assert "[INFO]" not in done.output
    assert "[WARNING]" not in done.output
    assert "[ERROR]" not in done.output


def test_icon_of_the_chart_is_a_picture_of_this_repository() -> None:
    """Catalogues of charts load it from the main branch."""
    icon = yaml.safe_load((CHART / "Chart.yaml").read_text())["icon"]
    host, _, path = icon.partition("/dra-extender/dra-extender/main/")
    assert host == "https://raw.githubusercontent.com"
    assert ET.parse(REPOSITORY / path).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314 - it is ours
