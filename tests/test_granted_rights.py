"""The comparison of granted rights with what was asked for finds what is denied and what is spare."""

import json
from pathlib import Path

import pytest

from tests.controlplane.audit import Asked, asked_in
from tests.support import granted_rights
from tests.support.granted_rights import NOT_REQUESTS, Right, granted, keep, unused


def asked_for(rights: frozenset[Right]) -> list[Asked]:
    return [Asked(each.verb, each.group, each.resource, each.name, denied=False) for each in rights]


def test_rights_of_the_manifests_are_read_with_their_names() -> None:
    assert Right("patch", "resource.k8s.io", "deviceclasses", "wake-up.dra-extender.io") in granted()
    assert Right("get", "", "/metrics", "") in granted()
    assert Right("patch", "scheduling.k8s.io", "podgroups/status", "") in granted()


def test_a_right_that_nobody_uses_is_named() -> None:
    spare = Right("create", "", "pods/binding", "")
    assert unused(granted(), asked_for(granted() - {spare})) == [spare]
    assert unused(granted(), asked_for(granted())) == []


def test_a_right_about_one_object_is_not_used_by_a_request_about_another() -> None:
    right = Right("patch", "resource.k8s.io", "deviceclasses", "wake-up.dra-extender.io")
    other = Asked("patch", "resource.k8s.io", "deviceclasses", "gpu", denied=False)
    assert unused([right], [other]) == [right]


def refused(name: str, decision: str) -> str:
    """Return the event of a request with status 403: the authorizer denied it, or let it pass and admission refused it."""
    reference = {"resource": "resourceclaims", "subresource": "status", "apiGroup": "resource.k8s.io", "name": name}
    annotations = {"authorization.k8s.io/decision": decision}
    return json.dumps(
        {"verb": "update", "objectRef": reference, "responseStatus": {"code": 403}, "annotations": annotations}
    )


def test_a_denied_request_is_told_from_one_that_an_admission_policy_refused(tmp_path: Path) -> None:
    log = tmp_path / "audit.log"
    log.write_text("\n".join([refused("a", "forbid"), refused("b", "allow"), ""]))
    assert {(asked.name, asked.denied) for asked in asked_in(log)} == {("a", True), ("b", False)}


def test_what_an_api_server_denies_before_it_is_ready_does_not_count(tmp_path: Path) -> None:
    lines = [refused(name, decision) + "\n" for name, decision in (("a", "forbid"), ("b", "forbid"), ("c", "allow"))]
    log = tmp_path / "audit.log"
    log.write_text("".join([*lines, refused("d", "forbid") + "\n"]))
    start = range(len(lines[0]), len("".join(lines)))
    assert {asked.name for asked in asked_in(log, 0, [start])} == {"a", "c", "d"}
    assert {asked.name for asked in asked_in(log, len(lines[0]), [start])} == {"c", "d"}


@pytest.mark.parametrize(
    ("module", "denied", "status"),
    [
        ("tests.e2e.test_e2e_groups", False, 0),
        ("tests.e2e.test_e2e_groups", True, 1),
        ("tests.e2e.test_e2e_missing_rights", True, 0),
    ],
)
def test_the_run_fails_when_the_service_was_denied_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, *, denied: bool, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    every = asked_for(frozenset(each for each in granted() if each.resource not in NOT_REQUESTS))
    keep(tmp_path, "tests.e2e.test_e2e_other", every)
    keep(tmp_path, module, [Asked("get", "", "secrets", "x", denied)])
    assert granted_rights.main() == status


def test_a_run_that_kept_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert granted_rights.main() == 1
