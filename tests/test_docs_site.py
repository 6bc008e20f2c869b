"""The site of the documents: links stay within it, every document has a place, and nothing is loaded from elsewhere."""

from pathlib import Path

import pytest

from tests.support.docs_site import (
    ROOT,
    loaded_from_elsewhere,
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


def test_a_document_without_a_place_is_named(staged: Path, tmp_path: Path) -> None:
    (tmp_path / "lost.md").write_text("# Lost\n")
    assert unreachable(tmp_path) == ["lost.md"]


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


@pytest.mark.parametrize(
    ("name", "text", "what"),
    [
        ("a.html", '<script src="https://cdn.example/x.js"></script>', "https://cdn.example/x.js"),
        ("a.html", '<link rel=stylesheet href="//fonts.example/css?family=A">', "//fonts.example/css?family=A"),
        ("a.html", "<img alt=x src=http://pictures.example/a.png>", "http://pictures.example/a.png"),
        ("a.html", '<pre class="mermaid"><code>flowchart</code></pre>', "mermaid"),
        ("a.css", "@font-face{src:url(https://fonts.example/a.woff2)}", "https://fonts.example/a.woff2"),
    ],
)
def test_what_a_page_loads_from_elsewhere_is_named(tmp_path: Path, name: str, text: str, what: str) -> None:
    (tmp_path / name).write_text(text)
    assert loaded_from_elsewhere(tmp_path) == [f"{name}: {what}"]


def test_links_that_a_reader_follows_are_no_loads(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<a href="https://kubernetes.io">k</a><link rel="canonical" href="https://a.example/"><script src="a.js"></script>'
    )
    assert loaded_from_elsewhere(tmp_path) == []
