"""The reasons in the condition PodScheduled, as kube-scheduler writes it."""

import pytest
from dra_extender.allocator.state.reasons import Code, Rejection
from dra_extender.inspection.why.report import ReasonKind
from dra_extender.inspection.why.reported import reported_reasons
from dra_extender.scheduling.evaluation.result import FURTHER_REASONS


def read(message: str) -> list[tuple[int, str, ReasonKind]]:
    return [(each.nodes, each.text, each.kind) for each in reported_reasons(message)]


def test_each_reason_has_its_number_of_nodes_and_what_it_is_about() -> None:
    message = (
        "0/12 nodes are available: 3 Insufficient cpu, 4 node(s) had untolerated taint {team: a}, "
        "5 node(s) didn't match Pod's node affinity/selector. preemption: 0/12 nodes are available: "
        "12 No preemption victims found for incoming pod."
    )
    assert read(message) == [
        (3, "Insufficient cpu", ReasonKind.RESOURCES),
        (4, "node(s) had untolerated taint {team: a}", ReasonKind.TAINTS),
        (5, "node(s) didn't match Pod's node affinity/selector", ReasonKind.AFFINITY),
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Too many pods", ReasonKind.RESOURCES),
        ("Insufficient example.com/gpu", ReasonKind.RESOURCES),
        ("node(s) were unschedulable", ReasonKind.UNSCHEDULABLE),
        ("node(s) didn't match pod anti-affinity rules", ReasonKind.OTHER_PODS),
        ("node(s) didn't match pod topology spread constraints", ReasonKind.OTHER_PODS),
        ("node(s) didn't have free ports for the requested pod ports", ReasonKind.PORTS),
        ("node(s) had volume node affinity conflict", ReasonKind.VOLUMES),
        ("cannot allocate all claims", ReasonKind.DEVICES),
        *((Rejection(code=code, claim="gpu", request="gpu").summary, ReasonKind.DEVICES) for code in Code),
        ('node(s): claim "insufficient" does not exist', ReasonKind.DEVICES),
        (f"node(s): {FURTHER_REASONS}", ReasonKind.DEVICES),
        ("something new", ReasonKind.OTHER),
    ],
)
def test_kind_follows_from_the_words_of_kube_scheduler(text: str, kind: ReasonKind) -> None:
    assert read(f"0/1 nodes are available: 1 {text}.") == [(1, text, kind)]


def test_message_of_another_form_is_one_reason() -> None:
    assert read("") == []
    assert read('resourceclaim "gpu" not found') == [(0, 'resourceclaim "gpu" not found', ReasonKind.DEVICES)]
    assert read("0/3 nodes are available: waiting for something.") == [(0, "waiting for something", ReasonKind.OTHER)]


def test_message_without_end_is_read_to_a_limit() -> None:
    assert len(read("0/9 nodes are available: " + ", ".join(f"1 reason {n}" for n in range(100_000)))) == 64
    assert len(read("x" * 10_000_000)[0][1]) == 16_384
    assert read("0/1 nodes are available: " + "9" * 10_000 + " many")[0][0] <= 999_999_999
