"""The audit finds each violation that is injected into a random sound cluster, and nothing in sound ones."""

import re
from pathlib import Path

import pytest
from dra_extender.inspection.audit.findings import Check
from dra_extender.inspection.audit.report import Soundness, audit_report

from tests.support.audit.mutations import MUTATIONS, Mutation
from tests.support.audit.sound_cluster import SoundCluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "operate" / "audit.md"
SOUND = 60
SEEDS = 5


def test_nothing_is_found_in_sound_clusters() -> None:
    for seed in range(SOUND):
        report = audit_report(SoundCluster(seed).made.view())
        assert (seed, report.findings, report.unjudged, report.verdict) == (seed, (), (), Soundness.SOUND)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda each: each.__name__)
def test_each_injected_violation_is_found(mutation: Mutation) -> None:
    for seed in range(SEEDS):
        cluster = SoundCluster(seed)
        check, about = mutation(cluster)
        report = audit_report(cluster.made.view())
        found = [(each.check, each.about) for each in report.findings]
        assert report.verdict is Soundness.UNSOUND, seed
        assert any(each == check and text.endswith(f" {about}") for each, text in found), (seed, check, about, found)


def test_every_check_has_a_violation_that_is_injected() -> None:
    injected = {mutation(SoundCluster(1)).check for mutation in MUTATIONS}
    assert injected == {each.value for each in Check}


def test_document_has_each_check_with_its_severity() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \|", DOCUMENT.read_text(), re.MULTILINE)
    assert rows == [(each.value, each.severity.value) for each in Check]
