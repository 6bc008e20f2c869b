import pytest

from tests.chart.programs import Helm, Object

pytestmark = pytest.mark.chart

EXTENDER_ONLY: Object = {
    "mode": "extenderOnly",
    "networkPolicy": {"schedulerFrom": [{"ipBlock": {"cidr": "192.0.2.7/32"}}]},
}


@pytest.mark.parametrize("values", [{}, EXTENDER_ONLY], ids=["secondScheduler", "extenderOnly"])
def test_lint_has_nothing_to_say(helm: Helm, values: Object) -> None:
    done = helm.run("lint", "--strict", values=values)
    assert done.code == 0, done.output + done.words
    assert "[WARNING]" not in done.output
    assert "[ERROR]" not in done.output
