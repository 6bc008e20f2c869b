"""The modules that a filter call and a bind call run through; `python -m tests.support.call_walks` writes them into a document.

A filter call is traced until its response; the holds that it defers and the prefetch follow later.  A bind call is traced with the
watch that delivers its writes, and without the prefetch, which callbacks of the event loop run.
"""

import ast
import asyncio
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from dra_extender.model.pod import Pod
from dra_extender.simulator.apiserver.objects import StoredKind

from tests.support.model.reading import pod_from
from tests.support.scheduling.world import InMemoryExtender
from tests.support.tracing import modules_crossed

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "app" / "dra_extender"
DOCUMENT: Final = ROOT / "docs" / "architecture.md"
NODES: Final = ("n0", "n1")
_TURNS: Final = 100
_SENTENCE_END: Final = re.compile(r"(?<=\.)\s|\n\n")


class CallWalks(NamedTuple):
    """The modules of a filter call for the first pod of a workload, for the next one, and of a bind call."""

    first: Sequence[str]
    replica: Sequence[str]
    bind: Sequence[str]


async def trace_calls() -> CallWalks:
    """Trace calls for two pods of one workload, each with a claim of its own, on two nodes that are not equivalent."""
    world = InMemoryExtender()
    world.device_class()
    for devices, name in enumerate(NODES, start=4):
        world.node(name)
        world.gpus(name, devices)
    first, replica = (_pod(world, index) for index in range(2))
    with modules_crossed() as of_first:
        response = await world.extender.filter(first, NODES)
    assert response.fitting
    await _end_what_follows()
    with modules_crossed() as of_replica:
        response = await world.extender.filter(replica, NODES)
    assert response.fitting
    await _end_what_follows()
    async with world.watching():
        with modules_crossed() as of_bind:
            await world.bind(first.name, NODES[0])
    return CallWalks(of_first, of_replica, of_bind)


def tables(walks: CallWalks) -> dict[str, str]:
    """The tables of the document, by the name in their marks."""
    beside = Counter(each.split("/")[0] for each in walks.bind if not each.startswith("scheduling/"))
    counts = ", ".join(f"{count} of `{package}`" for package, count in sorted(beside.items()))
    ours = [each for each in walks.bind if each.startswith("scheduling/")]
    return {
        "filter call": _table(walks.replica),
        "bind call": f"{_table(ours)}\nBesides: {counts}; {len(walks.bind)} modules in all.\n",
    }


def tables_in_document() -> dict[str, str]:
    """The tables as the document has them."""
    text = DOCUMENT.read_text()
    return {name: text.partition(_begin(name))[2].partition(_end(name))[0] for name in ("filter call", "bind call")}


def _table(modules: Sequence[str]) -> str:
    rows = (f"| `{each}` | {_purpose(each)} |" for each in modules)
    return "\n".join(("| module | what it is for |", "|---|---|", *rows, ""))


def _purpose(module: str) -> str:
    """The first sentence of the module's docstring, else of its first class or function that has one."""
    tree = ast.parse((PACKAGE / module).read_text())
    text = next(_docstrings(tree), "")
    return _SENTENCE_END.split(text, maxsplit=1)[0].replace("\n", " ")


def _docstrings(tree: ast.Module) -> Iterator[str]:
    public = (each for each in tree.body if isinstance(each, ast.ClassDef | ast.FunctionDef) and each.name[0] != "_")
    for node in (tree, *public):
        text = ast.get_docstring(node)
        if text:
            yield text


def _pod(world: InMemoryExtender, index: int) -> Pod:
    world.add_claim(f"c{index}")
    spec = {
        "schedulerName": "dra-extender-scheduler",
        "containers": [{"name": "main", "image": "pause"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": f"c{index}"}],
    }
    return pod_from(world.create(StoredKind.POD, {"metadata": {"name": f"p{index}"}, "spec": spec}))


async def _end_what_follows() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)


def _begin(name: str) -> str:
    return f"<!-- {name} -->\n"


def _end(name: str) -> str:
    return f"<!-- end of {name} -->"


def main() -> int:
    """Write the tables into the document."""
    text = DOCUMENT.read_text()
    for name, table in tables(asyncio.run(trace_calls())).items():
        before, _, rest = text.partition(_begin(name))
        text = f"{before}{_begin(name)}{table}{_end(name)}{rest.partition(_end(name))[2]}"
    DOCUMENT.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
