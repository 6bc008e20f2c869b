"""The views: what each shows of a state of the cluster, as HTML."""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from dra_extender.allocator.state.features import FIELD_OF_NAME
from dra_extender.inspection.devices import DevicesReport, UnknownNodeError
from dra_extender.inspection.objects import MissingKind
from dra_extender.inspection.why.why import UnknownPodError
from dra_extender.page.command_lines import CommandLines
from dra_extender.page.map_view import TileState, device_map
from dra_extender.page.node_view import pool_sections
from dra_extender.page.paging import PageError, page_number, part_of
from dra_extender.page.rendering import Renderer
from dra_extender.page.reports import Reports

_NODES: Final = 200
"""Names of nodes on one page."""

Query = Mapping[str, str]


class View(NamedTuple):
    """A view by its path below the token, and its name in the navigation."""

    path: str
    title: str


VIEWS: Final = (View("map", "Map"), View("node", "Node"))


class Facts(NamedTuple):
    """What every view says: source, age of the data (seconds since the epoch), release, gates, and what is missing."""

    generation: int
    live: bool
    source: str
    now: float
    release: str
    gates: str
    missing: tuple[MissingKind, ...]
    problems: tuple[str, ...]


class Answer(NamedTuple):
    """A page and its HTTP status."""

    html: str
    status: int = 200


class Views:
    """Renders each view."""

    def __init__(self, renderer: Renderer, commands: CommandLines) -> None:
        self._renderer = renderer
        self._commands = commands
        self._by_path: Mapping[str, Callable[[Reports, Query], str]] = {"map": self._map, "node": self._node}

    def answer(self, path: str, reports: Reports, query: Query) -> Answer:
        """The view of this path; status 404 for what is not there, 400 for a query that cannot be meant."""
        view = self._by_path.get(path)
        if view is None:
            return self._problem(reports, f"There is no view {path[:80]!r}.", 404)
        try:
            return Answer(view(reports, query))
        except (UnknownNodeError, UnknownPodError) as problem:
            return self._problem(reports, str(problem), 404)
        except PageError as problem:
            return self._problem(reports, str(problem), 400)

    def _map(self, reports: Reports, query: Query) -> str:
        driver, nodes = query.get("driver", ""), query.get("nodes", "")
        shown = device_map(reports.devices, reports.totals, driver, nodes, page_number(query.get("page", "")))
        return self._page(
            "map", "Map of devices", reports, self._commands.devices(driver=driver), map=shown, states=tuple(TileState)
        )

    def _node(self, reports: Reports, query: Query) -> str:
        name = query.get("name", "")
        report = reports.node(name) if name else DevicesReport(format="", origin=reports.view.origin, pools=())
        return self._page(
            "node",
            f"Node {name}" if name else "Nodes",
            reports,
            self._commands.devices(node=name),
            name=name,
            nodes=reports.nodes,
            part=part_of(len(reports.nodes), _NODES, page_number(query.get("page", ""))),
            pools=pool_sections(report),
        )

    def _problem(self, reports: Reports, problem: str, status: int) -> Answer:
        return Answer(self._page("problem", "Nothing to show", reports, "", problem=problem), status)

    def _page(self, view: str, title: str, reports: Reports, command: str, **values: object) -> str:
        return self._renderer.page(
            f"{view}.html", view=view, views=VIEWS, title=title, command=command, facts=_facts(reports), **values
        )


def _facts(reports: Reports) -> Facts:
    origin, features = reports.view.origin, reports.view.features
    off = [name for name, field in FIELD_OF_NAME.items() if not getattr(features, field)]
    return Facts(
        generation=reports.generation,
        live=reports.live,
        source=origin.source,
        now=origin.taken_at,
        release=origin.release,
        gates="all of DRA" if not off else f"all of DRA but {', '.join(off)}",
        missing=tuple(each for each in origin.missing if each.served),
        problems=(*reports.problems, *(f"{each.kind}: {each.reason}" for each in reports.view.unreadable)),
    )
