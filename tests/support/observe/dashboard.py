"""The dashboard of the chart: `make generate` writes it.

A panel is a title, what its values are, and queries.  Their place follows from their order: rows of a heading and panels of equal
width.  `$cluster`, `$job` and `$namespace` stand for what is chosen on the dashboard.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

CHART: Final = Path(__file__).parents[3] / "helm" / "dra-extender"
FILE: Final = CHART / "monitoring" / "dashboard.json"
SELECTOR: Final = 'cluster=~"$cluster",job=~"$job",namespace=~"$namespace"'
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
    """A picture: `kind` is Grafana's name of it, `unit` Grafana's name of what the values are; `red` from this value on.

    `runbooks`: alerts about what it shows.
    """

    title: str
    about: str
    queries: tuple[Query, ...]
    unit: str = "short"
    kind: str = "timeseries"
    stacked: bool = False
    red: float | None = None
    runbooks: tuple[str, ...] = ()


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({metric}{{SERIES}}[$__rate_interval]))"


def _increase(metric: str, by: str) -> str:
    return f"sum by ({by}) (increase(dra_extender_{metric}{{SERIES}}[$__rate_interval]))"


def _quantile(part: float, metric: str, by: str = "", matchers: str = "") -> str:
    more, labels = (f",{matchers}" if matchers else ""), (f"le, {by}" if by else "le")
    inner = f"sum by ({labels}) (rate({metric}_bucket{{SERIES{more}}}[$__rate_interval]))"
    return f"histogram_quantile({part}, {inner})"


def _of_leader(metric: str, by: str, matchers: str = "") -> str:
    """A gauge as the acting replica has it."""
    series = f"SERIES,{matchers}" if matchers else "SERIES"
    return f"max by ({by}) (dra_extender_{metric}{{{series}}} and on (instance) (dra_extender_leader{{SERIES}} == 1))"


def _stat(
    title: str, about: str, text: str, unit: str = "short", red: float | None = None, runbooks: tuple[str, ...] = ()
) -> Panel:
    return Panel(title, about, (Query(text),), unit, "stat", red=red, runbooks=runbooks)


ROWS: Final[Sequence[tuple[str, tuple[Panel, ...]]]] = (
    (
        "Now",
        (
            _stat(
                "Replicas that act",
                "Replicas that hold the Lease. One is right; with none, no pod with claims is placed.",
                "sum(max by (instance) (dra_extender_leader{SERIES}))",
                runbooks=("DRAExtenderNoLeader", "DRAExtenderTwoLeaders"),
            ),
            _stat(
                "Usable devices",
                "Devices that a claim of one device could get now.",
                'sum(max by (driver) (dra_extender_devices{SERIES,state="usable"}))',
            ),
            _stat(
                "Pods that wait",
                "Pods that were refused on every node and have not been placed since.",
                "max(dra_extender_waiting_pods{SERIES})",
            ),
            _stat(
                "Longest wait",
                "How long the pod that waits longest has waited.",
                _of_leader("waiting_pods_longest_seconds", "instance"),
                "s",
                3600,
                ("DRAExtenderPodsWaitLong",),
            ),
            _stat(
                "Audit errors",
                "Contradictions that the last audit found among allocations.",
                'sum(max by (check) (dra_extender_audit_findings{SERIES,severity="error"}))',
                red=1,
                runbooks=("DRAExtenderOverAllocated", "DRAExtenderAuditFindings"),
            ),
            _stat(
                "Oldest watch",
                "Time since the API server last answered the list or watch of a kind.",
                "max(dra_extender_watch_age_seconds{SERIES})",
                "s",
                180,
                ("DRAExtenderWatchStale",),
            ),
        ),
    ),
    (
        "Devices",
        (
            Panel(
                "Devices by driver and state",
                "allocated, held, usable, blocked by counters or groups, unusable, not judged: docs/reference/metrics.md",
                (Query(_of_leader("devices", "driver, state"), "{{driver}} {{state}}"),),
                stacked=True,
            ),
            Panel(
                "Devices that no claim can get",
                "Neither allocated nor held, and kept by counters, groups, their pool, a taint or their node.",
                (Query(_of_leader("devices", "driver, state", _KEPT), "{{driver}} {{state}}"),),
            ),
            Panel(
                "Claims with holds",
                "Claims whose devices are held between filter and bind, and those that are held on several nodes.",
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
            Panel(
                "Calls",
                "Calls of kube-scheduler per second. The outcome again makes kube-scheduler try the pod again.",
                (Query(_rate("dra_extender_requests_total", "verb, outcome"), "{{verb}} {{outcome}}"),),
                "reqps",
            ),
            Panel(
                "Duration of filter",
                "How long the scheduling loop of kube-scheduler waits for a filter call.",
                tuple(
                    Query(
                        _quantile(part, "dra_extender_request_duration_seconds", matchers='verb="filter"'),
                        f"p{part * 100:g}",
                    )
                    for part in (0.5, 0.9, 0.99)
                ),
                "s",
                runbooks=("DRAExtenderFilterSlow",),
            ),
            Panel(
                "Duration of bind, p99",
                "From the bind call to its response; the wait for binding conditions counts.",
                (Query(_quantile(0.99, "dra_extender_bind_duration_seconds", "outcome"), "{{outcome}}"),),
                "s",
            ),
        ),
    ),
    (
        "Decisions",
        (
            Panel(
                "Reasons of refusals",
                "Refused nodes per second, by the ten most frequent reasons.",
                (Query(f"topk(10, {_rate('dra_extender_rejected_nodes_total', 'code')})", "{{code}}"),),
                "ops",
            ),
            Panel(
                "Time of decisions by share",
                "Seconds of searching per second; at 100 % the service decides without a pause.",
                (Query(_rate("dra_extender_search_seconds_total", "lane"), "{{lane}}"),),
                "percentunit",
            ),
            Panel(
                "Refused searches by namespace",
                "Calls per second that were denied a further slice of time, by the namespace of the pod.",
                (Query(_rate("dra_extender_search_refusals_total", "pod_namespace"), "{{pod_namespace}}"),),
                "ops",
                runbooks=("DRAExtenderSearchesRefused",),
            ),
            Panel(
                "Results from the cache",
                "Share of evaluations of a node that needed no search.",
                (
                    Query(
                        'sum(rate(dra_extender_node_answers_total{SERIES,source="memory"}[$__rate_interval]))'
                        " / sum(rate(dra_extender_node_answers_total{SERIES}[$__rate_interval]))",
                        "share",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Steps of searches, p99",
                "Steps of one search on one node; many steps mean a hard combination of requests.",
                (Query(_quantile(0.99, "dra_extender_search_steps"), "steps"),),
            ),
            Panel(
                "Requeues by reason",
                "Times per second that rejected pods were requeued, by the change that may let one of them fit.",
                (Query(_rate("dra_extender_scheduler_wakes_total", "reason"), "{{reason}}"),),
                "ops",
            ),
        ),
    ),
    (
        "API server",
        (
            Panel(
                "Requests by outcome",
                "Requests to the API server per second.",
                (
                    Query(
                        _rate("dra_extender_api_requests_total", "verb, resource, outcome"),
                        "{{verb}} {{resource}} {{outcome}}",
                    ),
                ),
                "reqps",
            ),
            Panel(
                "Duration of requests, p99",
                "How long the API server takes to answer, watches left out.",
                (
                    Query(
                        _quantile(0.99, "dra_extender_api_request_duration_seconds", "verb, resource", 'verb!="watch"'),
                        "{{verb}} {{resource}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "Writes of claims",
                "Writes of claims per second, by step; conflicts are tried again.",
                (Query(_rate("dra_extender_claim_writes_total", "step, outcome"), "{{step}} {{outcome}}"),),
                "ops",
            ),
            Panel(
                "Watch events",
                "Changes per second that the API server reports.",
                (Query(_rate("dra_extender_watch_events_total", "kind, type"), "{{kind}} {{type}}"),),
                "ops",
            ),
            Panel(
                "Age of watches",
                "Time since the API server last answered the list or watch of a kind, by replica.",
                (Query("max by (pod, kind) (dra_extender_watch_age_seconds{SERIES})", "{{pod}} {{kind}}"),),
                "s",
                runbooks=("DRAExtenderWatchStale",),
            ),
            Panel(
                "Failed watches",
                "Lists and watches per second that failed.",
                (Query(_rate("dra_extender_watch_failures_total", "kind, reason"), "{{kind}} {{reason}}"),),
                "ops",
            ),
        ),
    ),
    (
        "What should not happen",
        (
            Panel(
                "Overlaps",
                "New pairs of claims with the same device, capacity or counter.",
                (
                    Query(
                        _increase("allocation_overlaps_total", "kind, outcome, writer"),
                        "{{kind}} {{outcome}} {{writer}}",
                    ),
                ),
                runbooks=("DRAExtenderAllocationOverlap",),
            ),
            Panel(
                "Audit findings",
                "What the last audit found, by check.",
                (Query("max by (check, severity) (dra_extender_audit_findings{SERIES})", "{{severity}} {{check}}"),),
                runbooks=("DRAExtenderOverAllocated", "DRAExtenderAuditFindings"),
            ),
            Panel(
                "Released by reason",
                "Unused holds, reservations and allocations per second that were released, or could not be.",
                (Query(_rate("dra_extender_reclaims_total", "reason, outcome"), "{{reason}} {{outcome}}"),),
                "ops",
                runbooks=("DRAExtenderReclaimFailing",),
            ),
            Panel(
                "Background failures",
                "New failures of background tasks; a task that failed runs again.",
                (Query(_increase("background_failures_total", "task"), "{{task}}"),),
                runbooks=("DRAExtenderBackgroundTaskFailing",),
            ),
            Panel(
                "Fields that the API server drops",
                "New writes of which the API server did not keep a field, because a feature gate is off there.",
                (Query(_increase("stripped_fields_total", "field"), "{{field}}"),),
                runbooks=("DRAExtenderFieldsStripped",),
            ),
            Panel(
                "Changes of the leader",
                "Terms as leader that began or ended.",
                (Query(_increase("leader_changes_total", "pod, change"), "{{pod}} {{change}}"),),
                runbooks=("DRAExtenderNoLeader",),
            ),
        ),
    ),
    (
        "Binding conditions and process",
        (
            Panel(
                "Waits for binding conditions, p99",
                "How long binds wait until drivers report their devices ready.",
                (
                    Query(
                        _quantile(0.99, "scheduler_dra_bindingconditions_wait_duration_seconds", "driver, status"),
                        "{{driver}} {{status}}",
                    ),
                ),
                "s",
            ),
            Panel(
                "CPU",
                "Share of one core; the service decides on one core.",
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
                "Resident memory; docs/start/install.md says how much a cluster needs.",
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
        "templating": {
            "list": [
                _source_variable(),
                _label_variable("cluster", "Cluster"),
                _label_variable("job", "Job", "cluster"),
                _label_variable("namespace", "Namespace", "cluster", "job"),
            ]
        },
        "links": [_link("Runbooks", "")],
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
        "links": [_link(f"Runbook: {alert}", f"#{alert.lower()}") for alert in panel.runbooks],
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


def _label_variable(label: str, title: str, *chosen: str) -> dict[str, Any]:
    """A choice among the values of a label, of the series that the variables before it have `chosen`."""
    series = ",".join(f'{each}=~"${each}"' for each in chosen)
    return {
        "name": label,
        "label": title,
        "type": "query",
        "datasource": _SOURCE,
        "query": f"label_values(dra_extender_build_info{{{series}}}, {label})",
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        # Also where Prometheus has no such label.
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }


def _link(title: str, anchor: str) -> dict[str, Any]:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    url = f"{chart['home']}/blob/v{chart['version']}/docs/operate/runbooks.md{anchor}"
    return {"title": title, "type": "link", "url": url, "targetBlank": True}


def filled(query: str) -> str:
    """The query as Grafana sends it with everything chosen, at scrapes of a second."""
    return re.sub(r'"\$\w+"', '".*"', query.replace("$__rate_interval", "1m"))


def text() -> str:
    """The content of the file."""
    return json.dumps(dashboard(), indent=1) + "\n"
