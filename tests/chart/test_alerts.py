"""The alerts of the chart: promtool reads them, and each fires when it should and not before."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from dra_extender.telemetry.metrics import DEFINITIONS

from tests.chart.alerts import CASES, AlertCase
from tests.chart.programs import CHART, REPOSITORY, Helm, Object, run
from tests.chart.selecting import only
from tests.support.side_by_side import side_by_side

pytestmark = pytest.mark.chart

KIND: Final = ("--api-versions", "monitoring.coreos.com/v1")
RUNBOOKS: Final = REPOSITORY / "docs" / "operate" / "runbooks.md"


def rules(helm: Helm, **values: Any) -> list[Object]:
    rule = only(helm.template(*KIND, values={"prometheusRule": {"enabled": True, **values}}), "PrometheusRule")
    (group,) = rule["spec"]["groups"]
    found: list[Object] = group["rules"]
    return found


@pytest.fixture(scope="module")
def by_name(helm: Helm) -> Mapping[str, Object]:
    return {each["alert"]: each for each in rules(helm)}


def test_each_alert_has_a_case_a_runbook_and_a_name_in_the_schema(by_name: Mapping[str, Object]) -> None:
    assert [each.name for each in CASES] == list(by_name)
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["prometheusRule"]["properties"]
    assert schema["disabled"]["items"]["enum"] == list(schema["overrides"]["properties"]) == list(by_name)
    assert re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE) == list(by_name)
    for name, rule in by_name.items():
        page, _, section = rule["annotations"]["runbook_url"].partition("#")
        assert page.endswith("/docs/operate/runbooks.md"), name
        assert section == name.lower()


def test_a_summary_is_the_same_for_all_series_of_an_alert(by_name: Mapping[str, Object]) -> None:
    """Alertmanager groups by it; the description has the values."""
    assert [name for name, each in by_name.items() if "{{" in each["annotations"]["summary"]] == []


def test_alerts_read_metrics_that_exist(by_name: Mapping[str, Object]) -> None:
    known = {each.full_name + suffix for each in DEFINITIONS for suffix in ("", "_bucket", "_count", "_sum")}
    for name, rule in by_name.items():
        used = set(re.findall(r"dra_extender_\w+", rule["expr"]))
        assert used, name
        assert used <= known, name


def test_promtool_finds_no_fault(helm: Helm, promtool: Path, tmp_path: Path) -> None:
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules(helm)}]}))
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", file)
    assert done.code == 0, done.output + done.words
    assert f"{len(CASES)} rules found" in done.output + done.words


def test_each_alert_fires_when_it_should_and_not_before(
    by_name: Mapping[str, Object], promtool: Path, tmp_path: Path
) -> None:
    """One run of promtool for all; it names the alert and the time of what differs."""
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": list(by_name.values())}]}))
    tests = [_unit(each, by_name[each.name], fires=fires) for each in CASES for fires in (True, False)]
    unit = tmp_path / "unit.yaml"
    unit.write_text(yaml.safe_dump({"rule_files": [str(file)], "evaluation_interval": "1m", "tests": tests}))
    done = run(promtool, "test", "rules", unit)
    assert done.code == 0, done.output + done.words


def _unit(case: AlertCase, rule: Object, *, fires: bool) -> Object:
    series = case.fires if fires else case.quiet
    expected = {
        "exp_labels": {"severity": rule["labels"]["severity"], **case.labels},
        "exp_annotations": {**rule["annotations"], "description": case.description},
    }
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "alert_rule_test": [
            {"eval_time": case.at, "alertname": case.name, "exp_alerts": [expected] if fires else []},
        ],
    }


def test_thresholds_severity_and_duration_are_values(helm: Helm) -> None:
    changed = {
        each["alert"]: each
        for each in rules(
            helm,
            thresholds={"podWaitSeconds": 1234567, "filterSeconds": 0.25},
            overrides={"DRAExtenderPodsWaitLong": {"severity": "warning", "for": "30m"}},
            alertLabels={"team": "gpu"},
            disabled=["DRAExtenderTwoLeaders"],
            runbookURL="https://runbooks.example.com/dra/",
        )
    }
    waits = changed["DRAExtenderPodsWaitLong"]
    assert waits["expr"].endswith("> 1234567")
    assert (waits["for"], waits["labels"]) == ("30m", {"team": "gpu", "severity": "warning"})
    assert waits["annotations"]["runbook_url"] == "https://runbooks.example.com/dra#draextenderpodswaitlong"
    assert changed["DRAExtenderFilterSlow"]["expr"].endswith("> 0.25")
    assert "DRAExtenderTwoLeaders" not in changed


def test_own_matchers_choose_the_series(helm: Helm) -> None:
    found = rules(helm, selector='job="dra-extender"')
    assert all("dra_extender_" not in each["expr"] or '{job="dra-extender"' in each["expr"] for each in found)
    assert not any("%" in each["expr"] for each in found)


REFUSED: Final[Sequence[tuple[Mapping[str, Any], str]]] = (
    ({"disabled": ["NoLeader"]}, "/prometheusRule/disabled/0"),
    ({"overrides": {"NoLeader": {}}}, "/prometheusRule/overrides"),
    ({"overrides": {"DRAExtenderNoLeader": {"for": "soon"}}}, "/prometheusRule/overrides/DRAExtenderNoLeader/for"),
    ({"thresholds": {"filterSeconds": 0}}, "/prometheusRule/thresholds/filterSeconds"),
    ({"selector": 'job="a"} or vector(1'}, "/prometheusRule/selector"),
    ({"alertLabels": {"a-b": "c"}}, "/prometheusRule/alertLabels"),
)


async def test_wrong_values_are_refused(helm: Helm) -> None:
    async def refused(values: Mapping[str, Any], words: str) -> None:
        assert words in await asyncio.to_thread(helm.refusal, {"prometheusRule": values})

    await side_by_side({str(values): refused(values, words) for values, words in REFUSED})
