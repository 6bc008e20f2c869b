"""The site of the documents: links stay within it, every document has a place, and nothing is loaded from elsewhere."""

from pathlib import Path

import pytest

from tests.support.docs_site import (
    ROOT,
    pages_in_navigation,
    stage,
    staged_path,
    unreachable,
)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("site") / "docs"
    stage(target)
    return target


def test_every_document_has_a_place_in_the_navigation(staged: Path) -> None:
    assert unreachable(staged) == []


def test_the_navigation_names_documents_that_exist(staged: Path) -> None:
    assert [page for page in pages_in_navigation() if not (staged / page).is_file()] == []


def test_documents_of_the_top_level_are_staged_beside_the_others(staged: Path) -> None:
    assert staged_path(ROOT / "SECURITY.md") == Path("project/SECURITY.md")
    assert "](../policy.md" in (staged / "project" / "README.md").read_text()
    assert "](project/SECURITY.md)" in (staged / "inspection.md").read_text()


def test_linked_files_that_are_no_documents_come_along(staged: Path) -> None:
    linked = "files/deploy/base/scheduler-config/kube-scheduler.yaml"
    assert f"]({linked})" in (staged / "configuration-scheduler.md").read_text()
    assert (staged / linked).read_bytes() == (ROOT / linked.removeprefix("files/")).read_bytes()


def test_a_linked_folder_is_shown_by_an_index(staged: Path) -> None:
    assert "](../schemas/index.md)" in (staged / "reference" / "README.md").read_text()
    assert "](why-v1.json)" in (staged / "schemas" / "index.md").read_text()
