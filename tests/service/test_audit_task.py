"""The audit of the running service: when it pauses, what it counts, and what it says."""

from collections.abc import Iterator, Sequence
from typing import Final

import pytest
from dra_extender.config.service_settings import AuditSettings
from dra_extender.inspection.audit import published
from dra_extender.inspection.audit.cluster_audit import AuditedCluster
from dra_extender.inspection.audit.findings import AuditFinding, Check
from dra_extender.inspection.audit.published import slice_finding
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.device import PoolId
from dra_extender.model.resource_claim import DeviceRequest
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.runtime.clock import PAUSE_SECONDS, TURN_SECONDS
from dra_extender.service.audit_task import AuditTask
from dra_extender.telemetry.metrics import Metrics
from msgspec import json
from structlog.testing import capture_logs

from tests.controlplane.objects import device
from tests.support.audit.mutations import class_of_nothing, whole_device_twice
from tests.support.audit.sound_cluster import SoundCluster
from tests.support.clocks import SteppedClock
from tests.support.inspection.made_cluster import NOW, MadeCluster

TIMEOUT: Final = 600.0
FOUND: Final = 'dra_extender_audit_findings{check="double_allocation",severity="error"} '

UNJUDGED: Final = "dra_extender_audit_unjudged_claims "


def task(cluster: SoundCluster, clock: SteppedClock, *, enabled: bool = True) -> tuple[AuditTask, Metrics]:
    metrics = Metrics()
    audited = AuditedCluster(cluster.made.view().ledger, lambda: NOW, TIMEOUT)
    settings = AuditSettings(enabled=enabled, interval_seconds=7)
    return AuditTask(audited, metrics, settings, sleep=clock.sleep, monotonic=clock.monotonic), metrics


async def test_finding_counts_once_two_audits_in_a_row_have_it_and_is_logged_once() -> None:
    cluster = SoundCluster(3)
    _, device = whole_device_twice(cluster)
    audit, metrics = task(cluster, SteppedClock())

    with capture_logs() as logs:
        assert await audit.audit() == ()
        assert FOUND + "0.0" in (await metrics.render()).decode()
        assert [each.check for each in await audit.audit()] == [Check.DOUBLE_ALLOCATION]
        await audit.audit()

    assert FOUND + "1.0" in (await metrics.render()).decode()
    assert audit.notes() == {"audit": "double_allocation 1"}
    assert [(each["check"], each["about"]) for each in logs] == [("double_allocation", f"device {device}")]


async def test_finding_that_is_over_counts_no_more() -> None:
    cluster = SoundCluster(3)
    class_of_nothing(cluster)
    view = cluster.made.view()
    metrics = Metrics()
    audit = AuditTask(AuditedCluster(view.ledger, lambda: NOW, TIMEOUT), metrics, AuditSettings())
    await audit.audit()
    assert len(await audit.audit()) == 1
    del view.ledger.classes["misspelt"]
    assert await audit.audit() == ()
    assert audit.notes() == {}
    assert 'check="class_without_devices",severity="warning"} 0.0' in (await metrics.render()).decode()


async def test_it_pauses_before_it_has_worked_for_long() -> None:
    clock = SteppedClock(step=TURN_SECONDS / 4)
    audit, metrics = task(SoundCluster(3), clock)
    await audit.audit()
    assert len(clock.slept) > 5
    assert set(clock.slept) == {PAUSE_SECONDS}
    text = (await metrics.render()).decode()
    assert "dra_extender_audits_total 1.0" in text
    worked = float(text.partition("\ndra_extender_audit_seconds_total ")[2].partition("\n")[0])
    assert worked == pytest.approx(clock.time - sum(clock.slept), rel=0.5)


async def test_what_changes_during_a_pause_is_looked_at_as_it_is_then() -> None:
    """Claims, pods and slices that are gone by the time their turn comes are no finding and no failure."""
    cluster = SoundCluster(3)
    view = cluster.made.view()
    clock = SteppedClock(step=TURN_SECONDS)
    audit = AuditTask(
        AuditedCluster(view.ledger, lambda: NOW, TIMEOUT),
        Metrics(),
        AuditSettings(),
        sleep=clock.sleep,
        monotonic=clock.monotonic,
    )

    def shrink() -> None:
        for pod in list(view.ledger.pods.all())[:1]:
            view.ledger.pod_gone(pod.namespace, pod.name, pod.uid)
        for record in list(view.ledger.claims.records())[:1]:
            view.ledger.claim_gone(*record.claim.metadata.key, record.claim.metadata.uid)
        for name in list(view.ledger.slices.by_name)[:1]:
            view.ledger.overlays.withdraw(name)

    clock.on_sleep = shrink
    await audit.audit()
    assert not list(view.ledger.claims.records())
    clock.on_sleep = lambda: None
    await audit.audit()
    assert {each.check for each in await audit.audit()} <= {Check.CLASS_WITHOUT_DEVICES, Check.MISSING_CLAIM}


async def test_it_audits_at_its_interval_and_not_at_all_if_it_is_switched_off() -> None:
    off, _ = task(SoundCluster(3), SteppedClock(), enabled=False)
    await off.keep_auditing()

    clock = SteppedClock()
    audit, metrics = task(SoundCluster(3), clock)

    def stop() -> None:
        if len(clock.slept) == 3:
            raise ConnectionAbortedError

    clock.on_sleep = stop
    with pytest.raises(ConnectionAbortedError):
        await audit.keep_auditing()
    assert clock.slept == [7, 7, 7]
    assert "dra_extender_audits_total 2.0" in (await metrics.render()).decode()


async def test_log_of_one_audit_is_bounded() -> None:
    cluster = SoundCluster(3)
    for index in range(30):
        class_of_nothing(cluster)
        cluster.made.objects["deviceclasses"][-1]["metadata"]["name"] = f"misspelt-{index}"
    audit, _ = task(cluster, SteppedClock())
    await audit.audit()
    with capture_logs() as logs:
        assert len(await audit.audit()) == 30
    assert len(logs) == 21
    assert logs[-1]["number"] == 10


def requests(ledger: Ledger) -> Iterator[DeviceRequest]:
    for record in ledger.claims.records():
        yield from record.claim_with_spec.spec.devices.requests or ()


async def test_claims_that_cannot_be_compared_are_counted_and_each_reason_is_logged_once() -> None:
    cluster = SoundCluster(3)
    view = cluster.made.view()
    metrics = Metrics()
    audit = AuditTask(AuditedCluster(view.ledger, lambda: NOW, TIMEOUT), metrics, AuditSettings())
    claims = sum(1 for record in view.ledger.claims.records() if record.claim.status.allocation is not None)
    classes = dict(view.ledger.classes)
    used = {request.exactly.device_class_name for request in requests(view.ledger) if request.exactly is not None}

    await audit.audit()
    assert UNJUDGED + "0.0" in (await metrics.render()).decode()
    view.ledger.classes.clear()
    with capture_logs() as logs:
        await audit.audit()
        await audit.audit()
    assert claims > 1
    assert UNJUDGED + f"{claims}.0" in (await metrics.render()).decode()
    assert audit.notes()["audit, claims not judged"] == str(claims)
    warned = [each for each in logs if "cannot compare" in each["event"]]
    assert sum(each["claims"] for each in warned) == claims
    assert {each["reason"] for each in warned} == {f"device class {name} does not exist" for name in used}

    view.ledger.classes.update(classes)
    await audit.audit()
    assert UNJUDGED + "0.0" in (await metrics.render()).decode()
    assert "audit, claims not judged" not in audit.notes()


async def test_slices_are_looked_at_again_once_they_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = MadeCluster()
    cluster.nodes("n1", "n2")
    for name in ("n1", "n2"):
        cluster.gpus(name, device("gpu-0"))
    ledger = cluster.view().ledger
    audit = AuditTask(AuditedCluster(ledger, lambda: NOW, TIMEOUT), Metrics(), AuditSettings())
    looked: list[str] = []

    def noted(pool_id: PoolId, published: Sequence[ResourceSlice]) -> AuditFinding | None:
        looked.append(pool_id[1])
        return slice_finding(pool_id, published)

    monkeypatch.setattr(published, "slice_finding", noted)
    await audit.audit()
    assert sorted(looked) == ["n1", "n2"]
    await audit.audit()
    assert len(looked) == 2
    (first, _) = cluster.objects["resourceslices"]
    first["spec"]["devices"].append(first["spec"]["devices"][0])
    sinks_of(ledger)["resourceslices"].changed(json.encode(first))
    await audit.audit()
    assert looked[2:] == ["n1"]
    assert [each.check for each in await audit.audit()] == [Check.SLICES]
    sinks_of(ledger)["resourceslices"].deleted("", first["metadata"]["name"], first["metadata"]["uid"])
    assert await audit.audit() == ()
    assert looked[3:] == []
