"""What can be told of the image without an engine that builds it."""

import re

import pytest

from tests.chart.programs import REPOSITORY

pytestmark = pytest.mark.chart


def stages() -> list[list[tuple[str, str]]]:
    """Instructions of the Dockerfile, stage by stage; the first list is what comes before any stage."""
    text = (REPOSITORY / "Dockerfile").read_text()
    joined = re.sub(r"\\\n\s*", "", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found: list[list[tuple[str, str]]] = [[]]
    for line in filter(None, joined.splitlines()):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest.strip()))
    return found


def test_everything_installed_is_checked_against_a_hash_or_made_here() -> None:
    """From an index only by lock; the service's own wheel without asking one."""
    runs = [rest for stage in stages() for word, rest in stage if word == "RUN"]
    installs = [part for rest in runs for part in rest.split("&&") if re.search(r"\binstall\b", part)]
    assert len(installs) == 3
    for install in installs:
        locked = "--require-hashes --only-binary :all:" in install
        assert locked != ("--no-index --no-deps" in install or "--no-deps --no-index" in install), install


def test_secrets_of_the_build_stay_out_of_the_image() -> None:
    """An index with a password, or a certificate authority, is mounted for the instructions that ask the index, and no longer."""
    mounts = [rest for stage in stages() for word, rest in stage if word == "RUN" and "--mount" in rest]
    assert len(mounts) == 2
    assert all(set(re.findall(r"--mount=(\S+?),", rest)) == {"type=secret"} for rest in mounts)
    assert [word for word, rest in stages()[-1] if "--mount" in rest] == []


def test_an_image_with_traces_has_the_same_packages_and_those_of_the_extra() -> None:
    plain, tracing = (
        set(
            re.findall(
                r"^([a-z0-9._-]+==\S+)", (REPOSITORY / f"requirements{name}.lock").read_text(), flags=re.MULTILINE
            )
        )
        for name in ("", "-tracing")
    )
    assert plain < tracing
    more = {each.partition("==")[0] for each in tracing - plain}
    assert {"opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"} <= more
    assert all(each.startswith(("opentelemetry-", "googleapis-", "protobuf")) for each in more)
    (chosen,) = (rest for word, rest in stages()[1] if word == "RUN" and "${TRACING" in rest)
    assert '--requirement "requirements${TRACING:+-tracing}.lock"' in chosen
