"""The dashboard of the chart: `make generate` writes it.

A panel is a title, what its values are, and queries.  Their place follows from their order: rows of a heading and panels of equal
width.  `$namespace` stands for the namespaces that are chosen on the dashboard.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).parents[3] / "helm" / "dra-extender" / "monitoring" / "dashboard.json"
SELECTOR: Final = 'namespace=~"$namespace"'
_WIDTH: Final = 24
_HEIGHT: Final = 8
_SMALL: Final = 4
_KEPT: Final = 'state=~"blocked by .*|unusable"'
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, in which SERIES stands for the matchers of the dashboard, and the legend of its series."""

    text: str
    legend: str = "__auto"

    @property
    def expression(self) -> str:
        return self.text.replace("SERIES", SELECTOR)


@dataclass(frozen=True, slots=True)
class Panel:
    """A picture: `kind` is Grafana's name of it, `unit` Grafana's name of what the values are; `red` from this value on."""

    title: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    red: float | None = None
    about: str = ""


def _rate(metric: str, by: str, matchers: str = "") -> str:
    more = f",{matchers}" if matchers else ""
    return f"sum by ({by}) (rate(dra_extender_{metric}{{SERIES{more}}}[$__rate_interval]))"


def _quantile(part: float, metric: str, by: str = "", matchers: str = "") -> str:
    more, labels = (f",{matchers}" if matchers else ""), (f"le, {by}" if by else "le")
    inner = f"sum by ({labels}) (rate(dra_extender_{metric}_bucket{{SERIES{more}}}[$__rate_interval]))"
    return f"histogram_quantile({part}, {inner})"


def _of_leader(metric: str, by: str, matchers: str = "") -> str:
    """A gauge as the acting replica has it."""
    series = f"SERIES,{matchers}" if matchers else "SERIES"
    return f"max by ({by}) (dra_extender_{metric}{{{series}}} and on (instance) (dra_extender_leader{{SERIES}} == 1))"


def _stat(title: str, text: str, unit: str = "short", red: float | None = None) -> Panel:
    return Panel(title, (Query(text),), unit, "stat", red=red)


ROWS: Final[Sequence[tuple[str, tuple[Panel, ...]]]] = (
    (
        "Now",
        (
            _stat("Replicas that act", "sum(max by (instance) (dra_extender_leader{SERIES}))"),
            _stat("Usable devices", 'sum(max by (driver) (dra_extender_devices{SERIES,state="usable"}))'),
            _stat("Pods that wait", "max(dra_extender_waiting_pods{SERIES})"),
            _stat("Longest wait", _of_leader("waiting_pods_longest_seconds", "instance"), "s", 3600),
            _stat("Audit errors", 'sum(max by (check) (dra_extender_audit_findings{SERIES,severity="error"}))', red=1),
            _stat("Oldest watch", "max(dra_extender_watch_age_seconds{SERIES})", "s", 180),
        ),
    ),
    (
        "Devices",
        (
            Panel(
                "Devices by driver and state",
                (Query(_of_leader("devices", "driver, state"), "{{driver}} {{state}}"),),
                stacked=True,
                about="allocated, held, usable, blocked by counters or groups, unusable, not judged: docs/reference/metrics.md",
            ),
            Panel(
                "Devices that no claim can get",
                (Query(_of_leader("devices", "driver, state", _KEPT), "{{driver}} {{state}}"),),
                about="Neither allocated nor held, and kept by counters, groups, their pool, a taint or their node",
            ),
            Panel(
                "Claims with holds",
                (
                    Query(_of_leader("held_claims", "instance"), "held"),
                    Query(_of_leader("unsettled_claims", "instance"), "on several nodes"),
                ),
            ),
        ),
    ),
    (
        "Calls of kube-scheduler",
        (
            Panel("Calls", (Query(_rate("requests_total", "verb, outcome"), "{{verb}} {{outcome}}"),), "reqps"),
            Panel(
                "Duration of filter",
                tuple(
                    Query(_quantile(part, "request_duration_seconds", matchers='verb="filter"'), f"p{part * 100:g}")
                    for part in (0.5, 0.9, 0.99)
                ),
                "s",
            ),
            Panel(
                "Duration of bind, p99",
                (Query(_quantile(0.99, "bind_duration_seconds", "outcome"), "{{outcome}}"),),
                "s",
            ),
        ),
    ),
    (
        "Decisions",
        (
            Panel(
                "Reasons of refusals",
                (Query(f"topk(10, {_rate('rejected_nodes_total', 'code')})", "{{code}}"),),
                "ops",
                about="Refused nodes in a second",
            ),
            Panel(
                "Time of decisions by share",
                (Query(_rate("search_seconds_total", "lane"), "{{lane}}"),),
                "percentunit",
                about="Seconds of work in a second",
            ),
            Panel(
                "Refused searches by namespace",
                (
                    Query(
                        "sum by (pod_namespace) (increase(dra_extender_search_refusals_total{SERIES}[$__rate_interval]))",
                        "{{pod_namespace}}",
                    ),
                ),
            ),
            Panel(
                "Results from the cache",
                (
                    Query(
                        'sum(rate(dra_extender_node_answers_total{SERIES,source="memory"}[$__rate_interval]))'
                        " / sum(rate(dra_extender_node_answers_total{SERIES}[$__rate_interval]))",
                        "share",
                    ),
                ),
                "percentunit",
            ),
            Panel("Steps of searches, p99", (Query(_quantile(0.99, "search_steps"), "steps"),)),
            Panel("Requeues by reason", (Query(_rate("scheduler_wakes_total", "reason"), "{{reason}}"),), "ops"),
        ),
    ),
    (
        "API server",
        (
            Panel(
                "Requests by outcome",
                (Query(_rate("api_requests_total", "verb, resource, outcome"), "{{verb}} {{resource}} {{outcome}}"),),
                "reqps",
            ),
            Panel(
                "Duration of requests, p99",
                (
                    Query(
                        _quantile(0.99, "api_request_duration_seconds", "verb, resource", 'verb!="watch"'),
                        "{{verb}} {{resource}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Writes of claims",
                (Query(_rate("claim_writes_total", "step, outcome"), "{{step}} {{outcome}}"),),
                "ops",
            ),
            Panel("Watch events", (Query(_rate("watch_events_total", "kind, type"), "{{kind}} {{type}}"),), "ops"),
            Panel(
                "Age of watches",
                (Query("max by (pod, kind) (dra_extender_watch_age_seconds{SERIES})", "{{pod}} {{kind}}"),),
                "s",
            ),
            Panel(
                "Failed watches", (Query(_rate("watch_failures_total", "kind, reason"), "{{kind}} {{reason}}"),), "ops"
            ),
        ),
    ),
    (
        "What should not happen",
        (
            Panel(
                "Overlaps",
                (
                    Query(
                        "sum by (kind, outcome, writer) (dra_extender_allocation_overlaps_total{SERIES})",
                        "{{kind}} {{outcome}} {{writer}}",
                    ),
                ),
            ),
            Panel(
                "Audit findings",
                (Query("max by (check, severity) (dra_extender_audit_findings{SERIES})", "{{severity}} {{check}}"),),
            ),
            Panel(
                "Released by reason",
                (Query(_rate("reclaims_total", "reason, outcome"), "{{reason}} {{outcome}}"),),
                "ops",
            ),
            Panel(
                "Background failures",
                (Query("sum by (task) (dra_extender_background_failures_total{SERIES})", "{{task}}"),),
            ),
            Panel(
                "Fields that the API server drops",
                (Query("sum by (field) (dra_extender_stripped_fields_total{SERIES})", "{{field}}"),),
            ),
            Panel(
                "Terms as leader",
                (Query("sum by (pod, change) (dra_extender_leader_changes_total{SERIES})", "{{pod}} {{change}}"),),
            ),
        ),
    ),
    (
        "Binding conditions and process",
        (
            Panel(
                "Waits for binding conditions, p99",
                (
                    Query(
                        _quantile(0.99, "bindingconditions_wait_duration_seconds", "driver, status"),
                        "{{driver}} {{status}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "CPU",
                (
                    Query(
                        "rate(process_cpu_seconds_total{SERIES}[$__rate_interval])"
                        " and on (instance) dra_extender_build_info{SERIES}",
                        "{{pod}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Memory",
                (
                    Query(
                        "process_resident_memory_bytes{SERIES} and on (instance) dra_extender_build_info{SERIES}",
                        "{{pod}}",
                    ),
                ),
                "bytes",
            ),
        ),
    ),
)


def queries() -> dict[str, str]:
    """PromQL of every query by the title of its panel and its legend."""
    return {
        f"{panel.title} [{query.legend}]": query.expression
        for _, panels in ROWS
        for panel in panels
        for query in panel.queries
    }


def dashboard() -> dict[str, Any]:
    """The dashboard as Grafana imports it."""
    return {
        "uid": "dra-extender",
        "title": "dra-extender",
        "description": "Devices, decisions and health of the extender",
        "tags": ["kubernetes", "dra"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [_source_variable(), _namespace_variable()]},
        "panels": _panels(),
    }


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    top = 0
    for heading, panels in ROWS:
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        found.append({"id": len(found) + 1, "type": "row", "title": heading, "gridPos": place, "panels": []})
        top += 1
        small = panels[0].kind == "stat"
        columns, height = (len(panels), _SMALL) if small else (3, _HEIGHT)
        for index, panel in enumerate(panels):
            width = _WIDTH // columns
            place = {"h": height, "w": width, "x": index % columns * width, "y": top + index // columns * height}
            found.append({"id": len(found) + 1, "gridPos": place, **_panel(panel)})
        top += -(-len(panels) // columns) * height
    return found


def _panel(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.red is not None:
        steps.append({"color": "red", "value": panel.red})
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0, "thresholds": {"mode": "absolute", "steps": steps}}
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": each.expression,
                "legendFormat": each.legend,
            }
            for index, each in enumerate(panel.queries)
        ],
    }


def _source_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}


def _namespace_variable() -> dict[str, Any]:
    return {
        "name": "namespace",
        "label": "Namespace",
        "type": "query",
        "datasource": _SOURCE,
        "query": "label_values(dra_extender_build_info, namespace)",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        # Also where Prometheus has no label `namespace`.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"
