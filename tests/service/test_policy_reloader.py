"""The policy in force follows the policy file without a restart; a wrong file changes nothing and is told everywhere."""

import asyncio
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec
import pytest
from dra_extender.allocator.overlay.policy import OverlaidSlice, PolicyOverlay
from dra_extender.allocator.overlay.policy_effects import PublishedDevice, published_devices
from dra_extender.config.policy_file import InvalidPolicyError, read_policy
from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.sinks import sinks_of
from dra_extender.model.resource_slice import ResourceSlice
from dra_extender.service.policy_reloader import PolicyReloader
from dra_extender.telemetry.metrics import Metrics

from tests.support.ledger.ledger_events import raw_slice

GOOD = "rules: [{name: a, bindsToNode: true}]\n"
OTHER = "rules: [{name: b, pool: p2, bindsToNode: true}]\n"
WRONG = "rules: [{name: a, bindsToNode: 5}]\n"


@pytest.fixture
def ledger() -> Ledger:
    ledger = Ledger()
    for index, pool in enumerate(("p1", "p2"), 1):
        raw = raw_slice(f"s{index}", index, pool=pool, node=f"n{index}", devices=2)
        sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))
    return ledger


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def watch_of(path: Path | None, ledger: Ledger, metrics: Metrics) -> PolicyReloader:
    return PolicyReloader(path, ledger, metrics, seconds=3600, compatibility_groups=True)


def bound(ledger: Ledger) -> set[str]:
    """Devices that are bound to their node, as decisions see it."""
    return {each.name for item in ledger.slices.by_name.values() for each in item.devices if each.binds_to_node}


def count(metrics: Metrics, outcome: str) -> float:
    return metrics.registry.get_sample_value("dra_extender_policy_reads_total", {"outcome": outcome}) or 0.0


async def test_without_a_file_there_is_nothing_to_do(ledger: Ledger, metrics: Metrics) -> None:
    watch = watch_of(None, ledger, metrics)
    await watch.load()
    await watch.check()
    await watch.keep_reloading()
    assert watch.notes() == {}


async def test_a_changed_file_takes_effect_on_what_it_concerns_and_wakes(
    tmp_path: Path, ledger: Ledger, metrics: Metrics
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    assert bound(ledger) == {"s1-0", "s1-1", "s2-0", "s2-1"}
    before = {node: ledger.state_versions.version(node) for node in ("n1", "n2")}
    helped = ledger.changes.devices
    file.write_text(OTHER)
    await watch.check()
    assert bound(ledger) == {"s2-0", "s2-1"}
    assert ledger.state_versions.version("n1") > before["n1"]
    assert ledger.changes.devices == helped + 1
    assert watch.notes() == {"policy": f"1 rules of {file} in force"}
    assert count(metrics, "taken") == 2


async def test_a_mounted_config_map_is_followed_when_its_link_is_exchanged(
    tmp_path: Path, ledger: Ledger, metrics: Metrics
) -> None:
    for name, text in (("one", GOOD), ("two", OTHER)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "policy.yaml").write_text(text)
    (tmp_path / "..data").symlink_to("one")
    (tmp_path / "policy.yaml").symlink_to("..data/policy.yaml")
    watch = watch_of(tmp_path / "policy.yaml", ledger, metrics)
    await watch.load()
    (tmp_path / "..new").symlink_to("two")
    (tmp_path / "..new").rename(tmp_path / "..data")
    await watch.check()
    assert bound(ledger) == {"s2-0", "s2-1"}


@pytest.mark.parametrize("outcome", ["refused", "missing"])
async def test_a_wrong_or_vanished_file_leaves_the_old_policy_and_says_why(
    tmp_path: Path, ledger: Ledger, metrics: Metrics, outcome: str
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    if outcome == "refused":
        file.write_text(WRONG)
    else:
        file.unlink()
    await watch.check()
    assert bound(ledger) == {"s1-0", "s1-1", "s2-0", "s2-1"}
    assert count(metrics, outcome) == 1
    assert metrics.registry.get_sample_value("dra_extender_policy_current") == 0
    reason = "rules[0].bindsToNode (rule a): expected true" if outcome == "refused" else "it does not exist"
    assert watch.notes()["policy"].startswith(f"1 rules in force; policy file {file}: {reason}")
    file.write_text(OTHER)
    await watch.check()
    assert bound(ledger) == {"s2-0", "s2-1"}
    assert metrics.registry.get_sample_value("dra_extender_policy_current") == 1


async def test_at_the_start_a_wrong_file_is_an_error_and_a_missing_one_no_policy(
    tmp_path: Path, ledger: Ledger, metrics: Metrics
) -> None:
    file = tmp_path / "policy.yaml"
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    assert watch.notes()["policy"] == f"no policy in force; policy file {file}: it does not exist"
    file.write_text(GOOD)
    await watch.check()
    assert bound(ledger)
    file.write_text(WRONG)
    with pytest.raises(InvalidPolicyError):
        await watch_of(file, ledger, metrics).load()


class HeldReads:
    """Reads policy files as the service does, but returns only when the event loop lets it."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._may_end = threading.Event()

    def read(self, path: Path, *, compatibility_groups: bool) -> PolicyOverlay:
        policy = read_policy(path, compatibility_groups=compatibility_groups)
        self._loop.call_soon_threadsafe(self.began.set)
        if not self._may_end.wait(30):
            raise AssertionError("the event loop did nothing while a policy file was read")
        return policy

    def end(self) -> None:
        self._may_end.set()


@pytest.fixture
async def held_reads(monkeypatch: pytest.MonkeyPatch) -> HeldReads:
    reads = HeldReads()
    monkeypatch.setattr("dra_extender.service.policy_reloader.read_policy", reads.read)
    return reads


@pytest.mark.parametrize("at_start", [True, False])
async def test_the_event_loop_goes_on_while_the_file_is_parsed(
    tmp_path: Path, ledger: Ledger, metrics: Metrics, held_reads: HeldReads, *, at_start: bool
) -> None:
    file = tmp_path / "policy.yaml"
    watch = watch_of(file, ledger, metrics)
    file.write_text(GOOD)
    reading = asyncio.create_task(watch.load() if at_start else watch.check())
    await held_reads.began.wait()
    assert (bound(ledger), watch.notes()) == (set(), {"policy": f"no policy of {file} in force"})
    held_reads.end()
    await reading
    assert bound(ledger) == {"s1-0", "s1-1", "s2-0", "s2-1"}


async def test_of_two_files_that_follow_each_other_the_newer_one_is_in_force_at_the_end(
    tmp_path: Path, ledger: Ledger, metrics: Metrics, held_reads: HeldReads
) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(GOOD)
    watch = watch_of(file, ledger, metrics)
    older = asyncio.create_task(watch.check())
    await held_reads.began.wait()
    file.write_text(OTHER)
    newer = asyncio.create_task(watch.check())
    await asyncio.sleep(0)
    held_reads.end()
    await asyncio.gather(older, newer)
    assert bound(ledger) == {"s2-0", "s2-1"}
    assert count(metrics, "taken") == 2


async def test_slices_that_change_while_a_policy_is_worked_out_get_it_too(
    tmp_path: Path, ledger: Ledger, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "policy.yaml"
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    for index in range(3, 9):
        raw = raw_slice(f"s{index}", index, pool="p1", node="n1", devices=64)
        sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))
    file.write_text(GOOD)
    applied = asyncio.Event()
    apply = PolicyOverlay.apply

    def noted(policy: PolicyOverlay, item: ResourceSlice) -> OverlaidSlice:
        applied.set()
        return apply(policy, item)

    monkeypatch.setattr(PolicyOverlay, "apply", noted)
    checking = asyncio.create_task(watch.check())
    await applied.wait()
    assert not checking.done()
    for name, devices in (("s1", 3), ("s8", 1), ("new", 2)):
        raw = raw_slice(name, 20, pool="p1", node="n1", devices=devices)
        sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))
    sinks_of(ledger)["resourceslices"].deleted("", "s2", "")
    await checking
    published = {each.name for item in ledger.overlays.published.values() for each in item.devices}
    assert {"s1-2", "new-1"} <= published
    assert bound(ledger) == published


async def test_rules_that_fail_on_devices_are_told(tmp_path: Path, ledger: Ledger, metrics: Metrics) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text('rules: [{name: a, devices: \'device.attributes["x.com"].y == "z"\', bindsToNode: true}]\n')
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    told = watch.notes()["policy-rules"]
    assert told.startswith("rule a: devices: fails on gpu.example.com/p1/s1-0: ")
    assert told.endswith("; and 1 more")
    assert bound(ledger) == set()


async def test_rules_without_effect_are_looked_for_once_for_each_change_and_not_for_each_reader_of_the_page(
    tmp_path: Path, ledger: Ledger, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Anybody who reaches the port may read the page, as often as he likes, and looking takes a while."""
    looks = list[int]()

    def counted(slices: Iterable[ResourceSlice]) -> list[PublishedDevice] | None:
        looks.append(1)
        return published_devices(slices)

    monkeypatch.setattr("dra_extender.allocator.overlay.policy_effects.published_devices", counted)
    file = tmp_path / "policy.yaml"
    file.write_text("rules: [{name: a, pool: p3, bindsToNode: true}]\n")
    watch = watch_of(file, ledger, metrics)
    await watch.load()
    seen = len(looks)
    idle = "rule a has no effect: none of 4 published devices takes anything from it"
    for _ in range(3):
        assert watch.notes()["policy-effects"] == idle
    assert len(looks) == seen
    await watch.check()
    await watch.check()
    assert len(looks) == seen + 1
    raw = raw_slice("s3", 3, pool="p3", node="n3", devices=1)
    sinks_of(ledger)["resourceslices"].changed(msgspec.json.encode(raw))
    await watch.check()
    assert "policy-effects" not in watch.notes()
