from collections import Counter

import coverage
import pytest
import structlog
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.plugin"]

# How fast examples are made and answered says nothing about what they show, and depends on what else the machine does.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")

# The default shows every local variable of every frame, which takes seconds for one failure that a test brings about.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

E2E_SECONDS_OF_A_TEST = 6.0
# Files whose tests take longer; seconds of the whole file, measured beside two other workers.
E2E_SECONDS_OF_A_FILE = {
    "test_e2e_binding_emulated": 113.0,
    "test_e2e_chaos": 101.0,
    "test_e2e_workloads_crowd": 88.0,
    "test_e2e_workloads_made": 73.0,
    "test_e2e_leader": 64.0,
    "test_e2e_workloads": 64.0,
    "test_e2e_kill_boundaries": 63.0,
    "test_e2e_wake_up": 61.0,
    "test_kube_watches_e2e": 57.0,
    "test_e2e_fleet": 54.0,
    "test_e2e_binding_timeout": 51.0,
    "test_e2e_devices_beside_counters": 48.0,
    "test_e2e_workloads_gate": 47.0,
    "test_e2e_late_rights": 39.0,
    "test_e2e_workloads_per_pod": 35.0,
    "test_e2e_crash": 30.0,
    "test_e2e_workloads_lost_member": 30.0,
    "test_e2e_namespace_bytes": 25.0,
    "test_e2e_workloads_binding": 23.0,
}

# Files that run the same lines many times.  Coverage, which other tests have of these lines, would make them three times as long.
WITHOUT_COVERAGE = {
    "test_compile_budget",
    "test_fairness",
    "test_hold_fairness",
    "test_hostile",
    "test_namespace_bytes",
    "test_pauses",
    "test_program_cache",
    "test_result_cache",
}


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Take the lock from coverage's tracer: a test process waited for it for ever, though no other thread was left to release it.

    The lock orders threads that add a file at the same moment; here one thread at a time runs what is measured.
    """
    measured = coverage.Coverage.current()
    collector = None if measured is None else measured._collector
    if collector is not None:
        collector.data_lock = None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave long repetitions out of the measured coverage, and start the longest files on a control plane first.

    The workers, which take whole files, then end together.  xdist by itself starts the files with most tests first, and the longest
    ones have a single test.
    """
    for item in items:
        if item.path.stem in WITHOUT_COVERAGE:
            item.add_marker("no_cover")
    if any(item.get_closest_marker("e2e") is None for item in items):
        return
    tests = Counter(item.path for item in items)
    seconds = {
        path: E2E_SECONDS_OF_A_FILE.get(path.stem, E2E_SECONDS_OF_A_TEST * count) for path, count in tests.items()
    }
    items.sort(key=lambda item: (-seconds[item.path], str(item.path)))
