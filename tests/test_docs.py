"""What the documents point at exists: links, sections, files, tests, settings, metrics; and they say nothing of any one machine."""

import ast
import re
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import typer
import yaml
from dra_extender.cli.app import app
from dra_extender.config.settings import Settings
from dra_extender.telemetry.declaration import PREFIX
from dra_extender.telemetry.metrics import DEFINITIONS

from tests.parity.fuzz.cel.exceptions import EXCEPTIONS

ROOT: Final = Path(__file__).parent.parent
DOCUMENTS: Final = tuple(
    sorted(
        path.relative_to(ROOT).as_posix()
        for pattern in ("*.md", "docs/**/*.md", "helm/*/*.md")
        for path in ROOT.glob(pattern)
    )
)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"`([^`\n]+)`")
_CLASS: Final = re.compile(r"^class ([A-Z]\w+)", re.MULTILINE)
_CALL: Final = re.compile(
    r"(?:`|^\$ |^    |--from \. )(?:\.venv/bin/)?(?:dra-extender|kubectl[ -]dra) ([a-z][^`#|<\n]*)", re.MULTILINE
)
_STUMBLED: Final = re.compile(r"(?<!leaves it )\balone\b|\bwho may\b|\b(?!that |had )([a-z]+ )\1")
_PATH: Final = re.compile(r"(?:app|tests|deploy|helm|docs|bench)/[\w./-]+")


@cache
def text_of(name: str) -> str:
    """A document without its fenced blocks, which hold examples."""
    return re.sub(r"^```.*?^```", "", (ROOT / name).read_text(), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors_of(path: Path) -> frozenset[str]:
    """The sections of a document, as a link names them."""
    titles = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles)


def rows_of(name: str, heading: str = "") -> list[list[str]]:
    """The cells of each table row of a document, or of one of its sections, without the heads of the tables."""
    text = text_of(name)
    if heading:
        text = text.partition(f"\n{heading}\n")[2].partition("\n#")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    rules = {number for number, line in enumerate(rows) if set(line) <= set("|-")}
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for number, line in enumerate(rows)
        if number not in rules and number + 1 not in rules
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """Relative links name a file that exists, and a section that it has."""
    lost = []
    for target in _LINK.findall(text_of(name)):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, section = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        if not path.exists() or (section and section not in anchors_of(path)):
            lost.append(target)
    assert lost == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_are_named_exist(name: str) -> None:
    """In code marks: `app/room/file.py`, with `other.py` behind it in the same folder, or the start of a name."""
    lost = []
    for line in text_of(name).splitlines():
        folder = ROOT
        for code in _CODE.findall(line):
            path = code.partition("::")[0].rstrip("/")
            if _PATH.fullmatch(path) and "latest" not in path:
                folder = (ROOT / path).parent
                if not list(folder.glob(f"{Path(path).name}*")):
                    lost.append(code)
            elif folder != ROOT and re.fullmatch(r"\w+\.py", code) and not (folder / code).exists():
                lost.append(code)
    assert lost == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_nothing_is_said_of_one_machine(name: str) -> None:
    text = (ROOT / name).read_text()
    assert (
        re.findall(
            r"(?:/root|/work|/tmp|/home(?!/kubernetes/bin))/\S*|https?://\S*(?:pypi|proxy|mirror|artifactory|nexus)\S*",
            text,
        )
        == []
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_words_that_readers_stumble_over_are_not_used(name: str) -> None:
    """`alone` for only (something may be left alone), `who may` for with the right to, and a word twice."""
    prose = _CODE.sub("", text_of(name))
    assert [found[0] for found in _STUMBLED.finditer(prose)] == []


@cache
def shown_by() -> str:
    """All text from which a difference may name its test: test files, scenarios and expected differences."""
    files = [*(ROOT / "tests").rglob("test_*.py"), ROOT / "tests" / "parity" / "differences.yaml"]
    return "\n".join(file.read_text() for file in files)


def test_each_difference_names_what_shows_it() -> None:
    """A test file, a scenario that is known to differ, or a class of deliberate differences of the fuzz."""
    sections = ("## Allocation", "## Selectors", "## Scheduling")
    rows = [row for section in sections for row in rows_of("docs/reference/differences.md", section)]
    assert len(rows) > len(sections)
    assert [row[0] for row in rows if not _shows(row[-1])] == []


def _shows(cell: str) -> bool:
    classes = re.findall(r'"(\w+)" in `make fuzz`', cell)
    scenarios = yaml.safe_load((ROOT / "tests" / "parity" / "differences.yaml").read_text())
    codes = _CODE.findall(cell)
    named = any(code in scenarios or re.match(r"tests/\S*test_\w+\.py", code) for code in codes)
    return all(each in EXCEPTIONS for each in classes) and (named or bool(classes))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_tests_that_are_named_exist(name: str) -> None:
    """`tests/file.py::test_name`, or a scenario of tests/parity/differences.yaml."""
    lost = []
    for file, function in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text_of(name)):
        if f"def {function}(" not in (ROOT / file).read_text():
            lost.append(function)
    lost += [code for code in re.findall(r"`(S\d[\w.-]+)`", text_of(name)) if code not in shown_by()]
    assert lost == []


def test_each_bug_of_kube_scheduler_that_is_shown_is_told_of() -> None:
    shown = "tests/e2e/test_e2e_upstream_bugs.py"
    rows = set(re.findall(r"^async def (\w+)\(\s*rival: ", (ROOT / shown).read_text(), re.MULTILINE))
    assert set(re.findall(rf"`{shown}::(\w+)`", text_of("docs/reference/differences.md"))) == rows


SECRET_KEYS = {"tls.crt", "tls.key"}
"""The keys of a Secret of the type kubernetes.io/tls."""


@pytest.mark.parametrize("name", DOCUMENTS)
def test_settings_and_metrics_that_are_named_exist(name: str) -> None:
    groups = {group: set(field.annotation.model_fields) for group, field in Settings.model_fields.items()}  # type: ignore[union-attr]
    text = (ROOT / name).read_text()
    lost = [
        f"{group}.{setting}"
        for group, setting in re.findall(rf"`({'|'.join(groups)})\.([a-z_]+)\b", text)
        if setting not in groups[group] and f"{group}.{setting}" not in SECRET_KEYS
    ]
    suffixed = {f"{each.full_name}{end}" for each in DEFINITIONS for end in ("", "_bucket", "_sum", "_count")}
    lost += [metric for metric in re.findall(rf"\b{PREFIX}[a-z_]+\b(?!\*)", text) if not _is_metric(metric, suffixed)]
    assert lost == []


def _is_metric(name: str, known: set[str]) -> bool:
    """A whole name, or (with an underscore at its end) what several names begin with."""
    return name in known or (name.endswith("_") and any(each.startswith(name) for each in known))


def test_the_readme_leads_to_every_document() -> None:
    """Through the index of the documents."""
    assert "docs/index.md" in _LINK.findall(text_of("README.md"))
    linked = {f"docs/{target}" for target in _LINK.findall(text_of("docs/index.md"))}
    assert {name for name in DOCUMENTS if name.startswith("docs/")} - {"docs/index.md"} <= linked


def test_the_document_of_events_has_the_reasons_and_types_of_the_code() -> None:
    told = {row[0].strip("`"): row[1] for row in rows_of("docs/reference/api.md", "## Events")}
    code = "".join(file.read_text() for file in (ROOT / "app" / "dra_extender" / "scheduling").rglob("*.py"))
    reasons = dict(re.findall(r'^(\w*REASON)(?:: Final)? = "(\w+)"', code, re.MULTILINE))
    posts = re.findall(r"warning=(True|False),\s*reason=(\w+)", code)
    assert told == {reasons[name]: "Warning" if warning == "True" else "Normal" for warning, name in posts}
    assert set(told) == set(reasons.values())


def test_the_document_of_objects_names_every_key_of_ours() -> None:
    """Annotations, labels and finalizers under our domain that the code has, formats left out."""
    files = (ROOT / "app" / "dra_extender").rglob("*.py")
    keys = {each for file in files for each in re.findall(r'"(dra-extender\.io/[a-z-]+)"', file.read_text())}
    assert keys <= set(_CODE.findall(text_of("docs/reference/api.md")))


@cache
def classes() -> frozenset[str]:
    """The names of all public classes of the program."""
    files = (ROOT / "app" / "dra_extender").rglob("*.py")
    return frozenset(name for file in files for name in _CLASS.findall(file.read_text()))


def classes_in_glossary() -> frozenset[str]:
    return frozenset(code for row in rows_of("docs/concepts/glossary.md") for code in _CODE.findall(row[3]))


def test_each_class_that_the_glossary_names_exists() -> None:
    assert classes_in_glossary() - classes() == set()


def test_each_method_that_the_architecture_names_exists() -> None:
    named = {
        code for code in _CODE.findall(text_of("docs/architecture.md")) if re.match(r"[A-Z][a-z]\w+(?:\.\w+)?$", code)
    }
    owners = {name.partition(".")[0] for name in named}
    methods = {
        f"{cls.name}.{member.name}"
        for text in (file.read_text() for file in (ROOT / "app" / "dra_extender").rglob("*.py"))
        for cls in (ast.parse(text).body if owners.intersection(_CLASS.findall(text)) else ())
        if isinstance(cls, ast.ClassDef)
        for member in cls.body
        if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(named) > 1
    assert named - methods - classes() == set()


def test_each_example_is_told_of_in_the_demo_document() -> None:
    examples = {path.stem for path in (ROOT / "deploy" / "examples").glob("*.yaml")}
    assert {row[0] for row in rows_of("docs/start/demo.md") if re.match(r"\d\d-", row[0])} == examples


def test_each_example_says_first_that_only_the_demo_plays_it() -> None:
    """It creates Node and ResourceSlice objects, which a cluster would take for machines and devices."""
    examples = (ROOT / "deploy" / "examples").glob("*.yaml")
    first = {path.name: path.read_text(encoding="utf-8").partition("\n")[0] for path in examples}
    warned = {name for name, line in first.items() if "`dra-extender demo` only" in line and "Do not apply" in line}
    assert first.keys() == warned


def test_the_rights_in_the_install_document_are_those_that_are_granted() -> None:
    """Of each row with verbs: the resources before the word "named", the names behind it, the verbs."""
    granted = set()
    deploy = ROOT / "deploy"
    files = (deploy / "base" / "rbac.yaml", deploy / "components" / "group-claims" / "rbac.yaml")
    roles = [role for file in files for role in yaml.safe_load_all(file.read_text())]
    for rule in (rule for role in roles for rule in role.get("rules", ())):
        for what in rule.get("resources", rule.get("nonResourceURLs")):
            granted.add((what, frozenset(rule.get("resourceNames", ())), frozenset(rule["verbs"])))
    told = set()
    for what, verbs, _ in (row for row in rows_of("docs/start/install.md", "## Rights") if len(row) == 3):
        resources, _, names = what.partition(" named ")
        told |= {
            (each, frozenset(_CODE.findall(names)), frozenset(verbs.split(", "))) for each in _CODE.findall(resources)
        }
    assert told == granted


@pytest.mark.parametrize("name", DOCUMENTS)
def test_commands_that_are_named_exist(name: str) -> None:
    """Targets of make, and commands of dra-extender, wherever a document shows how they are called."""
    text = (ROOT / name).read_text()
    targets = set(re.findall(r"^([a-z0-9_-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    commands = {each.name or each.callback.__name__ for each in app.registered_commands if each.callback}
    commands |= {str(each.typer_instance.info.name) for each in app.registered_groups if each.typer_instance}
    lost = set(re.findall(r"(?:`|^\$ )make ([a-z][a-z0-9-]*)", text, re.MULTILINE)) - targets
    lost |= (
        set(re.findall(r"(?:`|^\$ (?:\.venv/bin/)?|^    )dra-extender ([a-z][a-z-]*)", text, re.MULTILINE)) - commands
    )
    lost |= set(re.findall(r"(?:`|^\$ )kubectl[ -]dra ([a-z][a-z-]*)", text, re.MULTILINE)) - commands
    assert lost == set()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_options_that_are_shown_exist(name: str) -> None:
    """Of each command of the program that a document shows, in a line of a console or in code marks."""
    text = (ROOT / name).read_text()
    calls = [call.split() for call in _CALL.findall(text)]
    assert [f"{' '.join(call)}: {each}" for call in calls for each in unknown_options(call)] == []


def unknown_options(words: list[str]) -> list[str]:
    """The options of a call that its command does not have."""
    command = typer.main.get_command(app)
    while words and hasattr(command, "get_command"):
        context = command.make_context("", [], resilient_parsing=True)
        found = command.get_command(context, words[0])
        if found is None:
            return []
        command, words = found, words[1:]
    known = {option for each in command.params for option in each.opts} | {"--help"}
    asked = {word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(?:=\S*)?", word)}
    return sorted(asked - known)
