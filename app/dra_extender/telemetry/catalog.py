"""Every metric of the service in one table, from which both the collectors and docs/metrics.md are made."""

from dataclasses import dataclass
from typing import Final, Literal

PREFIX: Final = "dra_extender_"
OTHER: Final = "other"
"""The label value that stands for all values beyond a metric's limit."""

_CALL_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
_BIND_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 600.0)
_CONDITION_SECONDS = tuple(0.1 * 2**power for power in range(14))
_PREBIND_SECONDS = (0.005, 0.01, *_CONDITION_SECONDS)
_SEARCH_STEPS = (1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0)


@dataclass(frozen=True, slots=True)
class Definition:
    """One metric: name without prefix and without the suffix `_total`, labels, meaning.

    `limit` bounds the combinations of label values; further ones are counted under `other`.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    limit: int = 40

    @property
    def full_name(self) -> str:
        """The name as a scrape shows it."""
        return f"{PREFIX}{self.name}{'_total' if self.kind == 'counter' else ''}"


DEFINITIONS: Final = (
    Definition(
        "requests",
        "counter",
        "Calls of kube-scheduler by verb and outcome: ok, again (the answer was an Error that asks to try again), "
        "malformed, too_large, closed (starting, stopping, not the leader), gone (the caller hung up while sending), internal",
        ("verb", "outcome"),
    ),
    Definition(
        "request_duration_seconds",
        "histogram",
        "Time from the first byte of a call's body to the answer; waiting for binding conditions counts",
        ("verb",),
        _CALL_SECONDS,
        4,
    ),
    Definition(
        "closed_connections",
        "counter",
        "Connections of callers that the service closed by itself, by reason: replaced (there were too many, and its caller had "
        "most), busy (there were too many, all being answered), idle, slow_request, slow_reader, large_head, large_body, pipeline "
        "(too many requests sent ahead), memory (unanswered requests took too much)",
        ("reason",),
        limit=12,
    ),
    Definition("connections", "gauge", "Open connections of callers"),
    Definition("in_flight_bytes", "gauge", "Bytes of requests that are not answered and of answers that are not sent"),
    Definition("rejected_nodes", "counter", "Nodes refused by filter, by the reason's code", ("code",), limit=60),
    Definition("bind", "counter", "Ends of bind calls, by outcome", ("outcome",), limit=8),
    Definition(
        "bind_duration_seconds", "histogram", "Duration of bind calls, by outcome", ("outcome",), _BIND_SECONDS, 8
    ),
    Definition("claim_writes", "counter", "Writes of ResourceClaims by step and outcome", ("step", "outcome")),
    Definition(
        "scheduler_wakes",
        "counter",
        "Requeues of rejected pods, by the change that may make one of them schedulable: devices, classes, claims, holds, "
        "cool_down (a backoff has ended), gang (a member can be placed now), or start (a term as leader has begun)",
        ("reason",),
    ),
    Definition(
        "node_answers",
        "counter",
        'Evaluations of one node: `source="memory"` is a cached result, `source="search"` a search',
        ("source",),
    ),
    Definition(
        "bindingconditions_allocations",
        "counter",
        "Devices with binding conditions that a bind waited for, by scheduler (`profile`), driver and status: success, failed, "
        "timeout, error (ended otherwise); as upstream's `scheduler_dra_bindingconditions_allocations_total`",
        ("profile", "driver", "status"),
        limit=120,
    ),
    Definition(
        "bindingconditions_wait_duration_seconds",
        "histogram",
        "Duration of waits for binding conditions, one count per driver of the pod's devices; as upstream's "
        "`scheduler_dra_bindingconditions_wait_duration_seconds`",
        ("profile", "driver", "status"),
        _CONDITION_SECONDS,
        120,
    ),
    Definition(
        "bindingconditions_attempts",
        "counter",
        "Binds of pods whose devices have binding conditions, by status: success, timeout, failure (also one that ended for "
        "another reason); each bind counts once, as KEP-5007 describes `scheduler_dra_bindingconditions_allocations_total`",
        ("status",),
    ),
    Definition(
        "bindingconditions_prebind_duration_seconds",
        "histogram",
        "Time from the decision to the Binding for all pods with claims, waiting for a gang left out, by status and by whether a "
        "device has binding conditions; as KEP-5007 describes `scheduler_dra_bindingconditions_prebind_duration_seconds`",
        ("status", "requires_bindingconditions"),
        _PREBIND_SECONDS,
    ),
    Definition("bindingconditions_waiting_pods", "gauge", "Pods whose bind waits for binding conditions now"),
    Definition(
        "allocation_overlaps",
        "counter",
        "Devices, capacities, counters or groups allocated to two claims, by kind, outcome: yielded (ours was released), "
        "reported (a pod of ours has it, too), and writer of the other allocation: foreign (another scheduler), own (this "
        "program), none (the slices publish less than was allocated)",
        ("kind", "outcome", "writer"),
        limit=40,
    ),
    Definition(
        "search_seconds",
        "counter",
        "Seconds that filter, preempt and bind calls took for their decisions, by what they were taken from: slice (a call's own "
        "slice was enough: from nobody's share), namespace (the share of a namespace), and of the latter everybody (the share of "
        "all namespaces, while pods of others waited or were asked about in the last 10 s) or alone (the share of a namespace that "
        "waits alone); wake_up: looking at refused pods after changes",
        ("lane",),
        limit=6,
    ),
    Definition("searches_resumed", "counter", "Paused searches that went on, in the same call or a later one"),
    Definition("searches_stopped", "counter", "Calls that were denied a further slice of time for their searches"),
    Definition("search_steps", "histogram", "Steps of one search on one node", (), _SEARCH_STEPS),
    Definition(
        "reclaims",
        "counter",
        "Holds, reservations and allocations found unused, by reason (docs/reclaim.md) and outcome: done, changed (looked at again "
        "later), foreign (another scheduler's, left alone), failed",
        ("reason", "outcome"),
        limit=50,
    ),
    Definition(
        "group_claims",
        "counter",
        "What the controller of PodGroup claims did (docs/workloads.md), by step: make, record, tell (a member), withdraw, let_go "
        "(a PodGroup), and outcome: done, changed (looked at again), failed",
        ("step", "outcome"),
        limit=16,
    ),
    Definition(
        "group_trials",
        "counter",
        "Pods bound with nothing but the reservation of their PodGroup (docs/workloads.md), by outcome: proven (the kubelet starts "
        "such pods), outdated (started, but the node has rebooted or its kubelet has another version since), unable (not started "
        "in time, reserved by itself then), full (the same, without room for that)",
        ("outcome",),
        limit=8,
    ),
    Definition(
        "group_claims_refused",
        "gauge",
        "1 after the controller of PodGroup claims has stopped because another one is at work, else 0",
    ),
    Definition("held_claims", "gauge", "Claims for which devices are held, not yet allocated"),
    Definition("guard_claims", "gauge", "Guard claims that keep devices for claims of other schedulers"),
    Definition("unsettled_claims", "gauge", "Held claims that may still land on one of several nodes"),
    Definition("waiting_pods", "gauge", "Pods that were refused on every node and have not been placed since"),
    Definition("claims_kept_bytes", "gauge", "Bytes that are kept of ResourceClaims, by estimate"),
    Definition(
        "claims_kept_short",
        "gauge",
        "ResourceClaims without their specs in memory, because those of their namespace take more than "
        "`scheduling.namespace_claim_bytes`",
    ),
    Definition(
        "claims_read_again",
        "counter",
        "Reads of such claims when a decision needed their specs, by outcome: ok, gone, changed (another one than the watch has "
        "brought, or too large), failed (no answer)",
        ("outcome",),
        limit=4,
    ),
    Definition(
        "contradicted_snapshots",
        "gauge",
        "Claims whose compatibility groups in the allocation, which count, differ from those in our annotation",
    ),
    Definition(
        "orphaned_allocations", "gauge", "Allocations of deleted claims that count because pods still use their devices"
    ),
    Definition("claims_deleted_in_use", "counter", "Claims that were deleted while pods used their devices"),
    Definition(
        "watch_events",
        "counter",
        "Watch events received, by kind of object and type of event",
        ("kind", "type"),
        limit=60,
    ),
    Definition("lists", "counter", "Complete lists of a kind", ("kind",)),
    Definition("relists", "counter", "Times a kind had to be listed again", ("kind",)),
    Definition("watch_failures", "counter", "Lists and watches that failed, by kind and reason", ("kind", "reason")),
    Definition(
        "unreadable_objects",
        "counter",
        "Objects of the API server that could not be read and were passed over",
        ("kind",),
    ),
    Definition(
        "watch_age_seconds", "gauge", "Seconds since the API server was last heard of in the watch of a kind", ("kind",)
    ),
    Definition(
        "api_requests",
        "counter",
        "Requests to the API server by verb, resource and outcome",
        ("verb", "resource", "outcome"),
        limit=120,
    ),
    Definition(
        "api_request_duration_seconds",
        "histogram",
        "Duration of requests to the API server; of a watch, until its answer begins",
        ("verb", "resource"),
        _CALL_SECONDS,
        32,
    ),
    Definition(
        "pod_events", "counter", "Events about pods: written, repeated, limited, overflowed or failed", ("outcome",)
    ),
    Definition(
        "stripped_fields",
        "counter",
        "Written fields that the API server did not keep (a feature gate there is off)",
        ("field",),
    ),
    Definition(
        "field_served", "gauge", "1 when the API server serves this optional field, 0 when it does not", ("field",)
    ),
    Definition(
        "policy_reads",
        "counter",
        "Times the policy file was read anew: taken, refused (it is wrong, the policy before stays in force) or missing",
        ("outcome",),
        limit=4,
    ),
    Definition(
        "policy_current",
        "gauge",
        "1 when the policy in force is the one in the policy file, 0 when it is not or there is none",
    ),
    Definition("leader", "gauge", "1 while this replica may act: it holds the lease, or leader election is off"),
    Definition(
        "leader_changes", "counter", "Terms that this replica began (`won`) and ended (`lost`)", ("change",), limit=2
    ),
    Definition(
        "background_failures",
        "counter",
        "Failures of work in the background, by task; each is logged, and the task starts again or goes on with the next object",
        ("task",),
    ),
    Definition("build_info", "gauge", "Always 1; the labels tell what is running", ("version", "python")),
)


def table() -> str:
    """The metrics as a Markdown table."""
    rows = ["| name | type | labels | meaning |", "|---|---|---|---|"]
    for each in sorted(DEFINITIONS, key=lambda definition: definition.full_name):
        labels = ", ".join(f"`{label}`" for label in each.labels) or "-"
        rows.append(f"| `{each.full_name}` | {each.kind} | {labels} | {each.meaning} |")
    return "\n".join(rows) + "\n"
