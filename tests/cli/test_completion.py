"""What a shell or kubectl is told when a person presses the tab key."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from dra_extender.cli import completion
from dra_extender.cli.app import PLUGIN_NAMES, plugin
from dra_extender.cli.completion import NameSource, Shell, answer, names_for, script

PROGRAMS = Path(sys.executable).parent


def asked(*words: str, names: NameSource = lambda *_: ()) -> tuple[list[str], int]:
    """The candidates without what they are for, and the directive."""
    *lines, directive = answer(typer.main.get_command(plugin), words, names).splitlines()
    return [line.partition("\t")[0] for line in lines], int(directive.removeprefix(":"))


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("wh",), [each for each in PLUGIN_NAMES if each.startswith("wh")]),
        (("",), list(PLUGIN_NAMES)),
        (("why", "--names"), ["--namespace"]),
        (("why", "-o", ""), ["tree", "json", "yaml", "markdown"]),
        (("why", "-o", "m"), ["markdown"]),
        (("why", "--output=j"), ["--output=json"]),
        (("why", "pod", "-n", "ml", "--as-g"), ["--as-group"]),
        (("completion", "z"), ["zsh"]),
        (("nothing", ""), list(PLUGIN_NAMES)),
        (("why", "--", "--names"), []),
        (("why", "-n", "--out"), []),
    ],
)
def test_candidates_are_what_may_stand_there(words: tuple[str, ...], found: list[str]) -> None:
    assert asked(*words) == (found, 4)


@pytest.mark.parametrize(
    ("words", "parameter"),
    [
        (("why", "n"), "pod"),
        (("why", "-n", "ml", "--", "n"), "pod"),
        (("why", "pod", "--node", "n"), "node"),
        (("why", "pod", "--node=n"), "node"),
        (("why", "--namespace", "n"), "namespace"),
        (("devices", "n"), "node"),
        (("what-if", "--drain", "n"), "drain"),
        (("what-if", "--without", "n"), "without"),
        (("what-if", "--evict", "n"), "evict"),
        (("defrag", "--pod", "n"), "pod"),
        (("defrag", "--empty-node", "n"), "node"),
        (("ui", "--context", "n"), "context"),
    ],
)
def test_names_of_objects_are_candidates_where_one_may_stand(words: tuple[str, ...], parameter: str) -> None:
    known = {parameter: ["name-1", "other", "name-2"]}
    before = words[-1].removesuffix("n")
    options = ["--namespace=ml"] if "ml" in words else []
    found, directive = asked(*words, names=lambda name, cluster: known[name] if list(cluster) == options else ())
    assert (found, directive) == ([f"{before}name-1", f"{before}name-2"], 4)


def kubectl(folder: Path, body: str) -> None:
    """A program kubectl that writes its arguments down, and then does this."""
    file = folder / "kubectl"
    file.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > "{folder}/asked"\n{body}\n')
    file.chmod(0o755)


def test_kubectl_is_asked_for_pods_that_wait_with_the_options_that_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubectl(tmp_path, "printf 'pod/train-0\\npod/train-1\\n'")
    monkeypatch.setattr(completion, "SECONDS", 60.0)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = ("-n", "ml", "--context=c", "-s", "https://h", "--insecure-skip-tls-verify", "--as", "me", "--as-uid=5")
    ours = ("-A", "--request-timeout", "5s", "--extender-url=http://h")
    found, _ = asked("why", *cluster, *ours, "-o", "json", "tr", names=names_for)
    assert found == ["train-0", "train-1"]
    assert (tmp_path / "asked").read_text().splitlines() == [
        *("get", "pods", "--output=name", "--field-selector=status.phase=Pending", "--request-timeout=60s"),
        *("--namespace=ml", "--context=c", "--server=https://h", "--insecure-skip-tls-verify", "--as=me", "--as-uid=5"),
    ]
    assert asked("why", "--snapshot", "x.tar.gz", "tr", names=names_for) == ([], 4)


@pytest.mark.parametrize(
    "body",
    [
        "exit 1",
        "echo 'pod/a'; exit 1",
        "kill -9 $$",
        "head -c 3000000 /dev/zero",
        "printf 'pod/\\033[31m\\npod/a\\tb\\n'",
    ],
)
def test_kubectl_that_fails_or_says_nonsense_gives_no_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str
) -> None:
    kubectl(tmp_path, body)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert list(names_for("pod", ())) == []


def test_kubectl_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completion, "SECONDS", 0.2)
    kubectl(tmp_path, "exec sleep 600")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert list(names_for("node", ())) == []


def test_without_kubectl_there_are_no_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert list(names_for("pod", ())) == []


@pytest.mark.parametrize("words", [("why", "--snapshot", ""), ("devices", "n1", "--kubeconfig", "x"), ("lint", "")])
def test_files_are_completed_where_a_file_may_stand(words: tuple[str, ...]) -> None:
    assert asked(*words) == ([], 0)


def test_candidates_say_what_they_are_for_in_one_line() -> None:
    lines = answer(typer.main.get_command(plugin), ("why", "--")).splitlines()
    assert "--as\tAsk in the name of this user." in lines
    assert all(line.count("\t") <= 1 for line in lines)


def test_kubectl_is_answered_in_its_protocol_by_the_installed_program() -> None:
    done = subprocess.run(
        [PROGRAMS / "kubectl_complete-dra", "why", "-o", "y"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "yaml\n:4\n"


ASK = {
    Shell.BASH: "source {file}; COMP_WORDS=({words}); COMP_CWORD={last}; _kubectl_dra; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
    Shell.FISH: "source {file}; complete --do-complete '{line}' | string split -f1 \\t; true",
    # The functions of zsh's completion system exist in an interactive shell alone.
    Shell.ZSH: (
        'compdef() {{ }}; _describe() {{ for each in $candidates; print -r -- "${{each%%:*}}" }}; '
        "source {file}; words=({words}); CURRENT={last}+1; _kubectl_dra"
    ),
}


@pytest.mark.verify
@pytest.mark.parametrize("shell", list(ASK))
@pytest.mark.parametrize(
    ("line", "found"), [("devi", {"devices"}), ("why --namesp", {"--namespace"}), ("why -o y", {"yaml"})]
)
def test_shell_with_the_script_completes_the_program(shell: Shell, line: str, found: set[str], tmp_path: Path) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.fail(f"{shell} is not installed: `make shell-test-setup` installs it on Debian")
    file = tmp_path / "completion"
    file.write_text(script(shell, "kubectl-dra"))
    words = ["kubectl-dra", *line.split()]
    ask = ASK[shell].format(file=file, words=" ".join(words), last=len(words) - 1, line=" ".join(words))
    path = f"{PROGRAMS}:/usr/bin:/bin"
    done = subprocess.run(
        [program, "-c", ask],
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (set(done.stdout.split()), done.stderr) == (found, "")


@pytest.mark.parametrize("shell", list(Shell))
def test_script_of_each_shell_names_the_program_alone(shell: Shell) -> None:
    text = script(shell, "kubectl-dra")
    assert "kubectl-dra __complete" in text
    assert "PROGRAM" not in text
    assert "FUNCTION" not in text
