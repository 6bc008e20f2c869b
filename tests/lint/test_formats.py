"""Findings as programs read them."""

import json
from pathlib import Path

import pytest
import yaml
from dra_extender.lint.formats import as_github, as_sarif
from dra_extender.lint.lint_files import LintReport, lint_files
from dra_extender.lint.read import read_files

ROOT = Path(__file__).parents[2]
WRONG = """\
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: gpu
{annotations}spec:
  selectors:
    - cel:
        expression: device.driver = 'gpu'
"""
ANNOUNCED = '  annotations: {dra-extender.io/lint: "expect: does-not-compile"}\n'


def report(annotations: str = "", file: str = "a.yaml") -> LintReport:
    return lint_files(read_files([(file, WRONG.format(annotations=annotations))]))


def test_sarif_has_rule_level_place_and_object() -> None:
    log = json.loads(as_sarif(report(), "1.2.3"))
    assert log["version"] == "2.1.0"
    [run] = log["runs"]
    assert run["tool"]["driver"]["version"] == "1.2.3"
    assert run["tool"]["driver"]["rules"] == [{"id": "does-not-compile"}]
    [result] = run["results"]
    assert (result["ruleId"], result["level"]) == ("does-not-compile", "error")
    assert "(in DeviceClass gpu, spec.selectors[0].cel.expression)" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place == {"artifactLocation": {"uri": "a.yaml"}, "region": {"startLine": 8, "startColumn": 35}}
    assert "suppressions" not in result


def test_announced_findings_are_suppressed_in_sarif_and_no_annotations() -> None:
    [result] = json.loads(as_sarif(report(ANNOUNCED), "1"))["runs"][0]["results"]
    assert result["suppressions"] == [{"kind": "inSource"}]
    assert as_github(report(ANNOUNCED)) == ""


def test_an_annotation_of_github_has_level_place_and_message() -> None:
    line = as_github(report())
    assert line.startswith("::error file=a.yaml,line=8,col=35,title=does-not-compile::Syntax error: ")
    assert "\n" not in line


@pytest.mark.parametrize(("name", "written"), [("a,b:c.yaml", "a%2Cb%3Ac.yaml"), ("50%.yaml", "50%25.yaml")])
def test_names_of_files_cannot_forge_an_annotation(name: str, written: str) -> None:
    assert as_github(report(file=name)).startswith(f"::error file={written},line=8,")


def test_the_hook_of_pre_commit_runs_the_command() -> None:
    [hook] = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["entry"] == "dra-extender lint"
    assert hook["id"] in (ROOT / "docs" / "tasks" / "lint.md").read_text()
