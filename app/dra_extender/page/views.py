"""The views: what each shows of a state of the cluster, as HTML."""

from collections.abc import Callable, Mapping
from shlex import join
from typing import Final

import structlog
from starlette.responses import HTMLResponse

from dra_extender.inspection.devices import DevicesReport
from dra_extender.inspection.lines import origin_lines
from dra_extender.inspection.objects import UnknownObjectError, UnreadKindsError
from dra_extender.page.devices_view import MOST_DEVICES, DeviceState, pool_states
from dra_extender.page.health import health
from dra_extender.page.map_view import device_map
from dra_extender.page.overview import overview
from dra_extender.page.rendering import Query, QueryError, number, page_templates, part_of, pod_key
from dra_extender.page.states import Reports
from dra_extender.page.waiting_view import pending_pods, pods_under_way

_LOG = structlog.get_logger(__name__)

PROGRAM: Final = ("kubectl", "dra")
_DEFAULT_NAMESPACE: Final = "default"
_MOST_PROBLEMS: Final = 20
_MOST_SAID: Final = 500
_ONE_LINE: Final = 10**9
_NODES: Final = 200
"""Names of nodes on one page."""


class CommandLines:
    """Command lines that ask the same cluster or snapshot as the page."""

    def __init__(self, source: tuple[str, ...] = ()) -> None:
        """`source` are the options that name it, such as `("--snapshot", "cluster.tar.gz")`."""
        self._source = source

    def waiting(self) -> str:
        return self._line("why")

    def why(self, namespace: str, name: str) -> str:
        return self._line("why", name, namespace="" if namespace == _DEFAULT_NAMESPACE else namespace)

    def devices(self, node: str = "", driver: str = "") -> str:
        return self._line("devices", node, driver=driver)

    def audit(self) -> str:
        return self._line("audit")

    def _line(self, command: str, name: str = "", **options: str) -> str:
        # A value that begins with a minus sign would be taken for an option.
        option_words = [
            part
            for option, value in options.items()
            if value
            for part in ((f"--{option}={value}",) if value.startswith("-") else (f"--{option}", value))
        ]
        names = (name,) if name else ()
        if name.startswith("-"):
            return join((*PROGRAM, command, *option_words, *self._source, "--", name))
        return join((*PROGRAM, command, *names, *option_words, *self._source))


VIEWS: Final = ("overview", "pending", "map", "node", "waiting", "health")
"""The paths of the views below the token, in the order of the navigation."""


class Views:
    """Renders each view."""

    def __init__(self, base: str, commands: CommandLines) -> None:
        """Links begin with `base`."""
        self._templates = page_templates(base)
        self._commands = commands
        self._by_path: Mapping[str, Callable[[Reports, Query], str]] = {
            "overview": self._overview,
            "pending": self._pending,
            "map": self._map,
            "node": self._node,
            "waiting": self._waiting,
            "health": lambda reports, _: self._page(
                "health", "Health", reports, self._commands.audit(), **health(reports)
            ),
        }

    def answer(self, path: str, reports: Reports, query: Query) -> HTMLResponse:
        """Return the view of this path; status 404 for what is not there, 403 for what may not be read, 400 for a wrong query."""
        view = self._by_path.get(path)
        if view is None:
            return self._problem(reports, f"There is no view {path[:80]!r}.", 404)
        try:
            return HTMLResponse(view(reports, query))
        except UnknownObjectError as problem:
            return self._problem(reports, str(problem), 404)
        except UnreadKindsError as problem:
            return self._problem(reports, str(problem), 403)
        except QueryError as problem:
            return self._problem(reports, str(problem), 400)
        except Exception as problem:  # noqa: BLE001 - one view that fails says so, and the others go on
            _LOG.exception("a view failed", view=path)
            return self._problem(reports, f"This view failed: {type(problem).__name__}: {problem}"[:_MOST_SAID], 500)

    def _overview(self, reports: Reports, _: Query) -> str:
        return self._page(
            "overview",
            "Overview",
            reports,
            self._commands.waiting(),
            overview=overview(reports),
            states=tuple(DeviceState),
        )

    def _pending(self, reports: Reports, query: Query) -> str:
        shown = pending_pods(reports, pod_key(query), number(query, "round"), number(query, "page"), self._commands.why)
        return self._page(
            "pending", "Pods that wait", reports, self._commands.waiting(), unfinished=shown.unfinished, pending=shown
        )

    def _waiting(self, reports: Reports, query: Query) -> str:
        shown = pods_under_way(reports, number(query, "page"))
        return self._page(
            "waiting",
            "Waiting for others",
            reports,
            self._commands.waiting(),
            unfinished=shown.unfinished,
            waiting=shown,
        )

    def _map(self, reports: Reports, query: Query) -> str:
        shown = device_map(reports, query)
        return self._page(
            "map",
            "Map of devices",
            reports,
            self._commands.devices(driver=shown.choices.driver),
            map=shown,
            drivers=[total.name for total in reports.drivers],
            classes=[total.name for total in reports.classes],
            states=tuple(DeviceState),
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
            part=part_of(len(reports.nodes), _NODES, number(query, "page")),
            pools=pool_states(report),
            most_devices=MOST_DEVICES,
        )

    def _problem(self, reports: Reports, problem: str, status: int) -> HTMLResponse:
        return HTMLResponse(self._page("problem", "Nothing to show", reports, "", problem=problem), status)

    def _page(self, view: str, title: str, reports: Reports, command: str, **values: object) -> str:
        return self._templates.get_template(f"{view}.html").render(
            view=view,
            views=VIEWS,
            title=title,
            command=command,
            facts=_facts(reports),
            **values,
        )


def _facts(reports: Reports) -> Mapping[str, object]:
    """Return what every view says: source, release, gates and what is missing, as label and text; `now` in seconds."""
    origin = reports.view.origin
    lines = (line.partition(" ") for line in origin_lines(origin, _ONE_LINE))
    # What could not be followed or read, in so many sentences as a person reads.
    problems = [*reports.problems, *map(str, reports.view.unreadable)]
    more = len(problems) - _MOST_PROBLEMS
    return {
        "generation": reports.generation,
        "live": reports.live,
        "origin": [(label, text.strip()) for label, _, text in lines],
        "now": origin.taken_at,
        "problems": (*problems[:_MOST_PROBLEMS], *((f"{more} more objects cannot be read",) if more > 0 else ())),
    }
