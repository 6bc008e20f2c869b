"""Events are read, kept in snapshots, and redacted."""

from pathlib import Path
from random import Random

import msgspec
import pytest
from dra_extender.inspection.cluster_view import ClusterView
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.pod_facts import ObjectEvents
from dra_extender.inspection.redaction.redact import redacted
from dra_extender.inspection.snapshot_file import read_snapshot, write_snapshot

from tests.support.inspection.made_cluster import NAMESPACE, Json, MadeCluster

SECRET = "s3cret"  # noqa: S105 - planted to be looked for


def event(name: str, **fields: object) -> Json:
    return {
        "kind": "Event",
        "metadata": {"name": name, "namespace": NAMESPACE, "annotations": {"note": SECRET}},
        "involvedObject": {"kind": "Pod", "namespace": NAMESPACE, "name": "train", "uid": "uid-1", "fieldPath": SECRET},
        "reason": "FailedResourceClaimCreation",
        "message": "exceeded quota: gpus",
        "type": "Warning",
        **fields,
    }


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({"lastTimestamp": "2026-11-25T09:00:00Z"}, 1_795_597_200.0, id="last"),
        pytest.param({"eventTime": "2026-11-25T09:00:00.000000Z"}, 1_795_597_200.0, id="new-api"),
        pytest.param(
            {
                "eventTime": "2026-11-25T08:00:00.000000Z",
                "series": {"count": 3, "lastObservedTime": "2026-11-25T09:00:00.000000Z"},
            },
            1_795_597_200.0,
            id="series",
        ),
        pytest.param({"lastTimestamp": "never"}, None, id="unreadable"),
        pytest.param({}, None, id="none"),
    ],
)
def test_event_has_the_time_of_its_last_report(fields: Json, expected: float | None) -> None:
    events = ObjectEvents([msgspec.json.encode(event("a", **fields)), b"no json", b"[]"])
    assert [each.last for each in events.about("Pod", NAMESPACE, "train")] == [expected]


def test_snapshot_has_the_events_and_nothing_of_them_that_answers_do_not_read(tmp_path: Path) -> None:
    made = MadeCluster()
    made.add(event("a", source={"component": "resource_claim", "host": SECRET}))
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(made.cluster(), file)

    kept = read_snapshot(file)

    assert ClusterView(kept).events.about("Pod", NAMESPACE, "train") == made.view().events.about(
        "Pod", NAMESPACE, "train"
    )
    assert SECRET not in b"".join(kept.of_kind("events")).decode()


def test_snapshot_without_events_says_that_they_are_not_known(tmp_path: Path) -> None:
    objects = MadeCluster().cluster()
    by_kind = {kind: found for kind, found in objects.by_kind.items() if kind != "events"}
    file = tmp_path / "cluster.tar.gz"
    write_snapshot(ClusterObjects(objects.origin, by_kind), file)
    assert ClusterView(read_snapshot(file)).unread_events(NAMESPACE) == f"snapshot {file} has none"


def test_redacted_event_keeps_its_reason_and_object_and_loses_its_message() -> None:
    made = MadeCluster()
    made.add(event("a", message=f"exceeded quota: {SECRET}", reportingComponent=SECRET))
    found = redacted(made.cluster(), Random(1))
    (data,) = found.objects.of_kind("events")
    assert SECRET.encode() not in data
    item = msgspec.json.decode(data)
    assert (item["reason"], item["message"]) == ("FailedResourceClaimCreation", "redacted")
    assert item["involvedObject"]["name"] == found.names.text("train") != "train"
