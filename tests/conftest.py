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
# Files whose tests take longer; seconds of the whole file, measured beside one other worker.
E2E_SECONDS_OF_A_FILE = {
    "test_e2e_chaos": 180.0,
    "test_e2e_workloads_lost_member": 90.0,
    "test_e2e_workloads_per_pod": 80.0,
    "test_e2e_namespace_bytes": 75.0,
    "test_e2e_workloads_binding": 65.0,
    "test_e2e_deleted_claims": 55.0,
    "test_e2e_fleet": 125.0,
    "test_e2e_late_rights": 110.0,
    "test_e2e_much_asked": 65.0,
    "test_e2e_devices_beside_counters": 135.0,
    "test_e2e_crash": 110.0,
    "test_e2e_spellings": 68.0,
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
    """Start the files on a control plane that take longest first, so that the workers, which take whole files, end together.

    xdist by itself starts the files with most tests first, and the longest ones have a single test.
    """
    if any(item.get_closest_marker("e2e") is None for item in items):
        return
    tests = Counter(item.path for item in items)
    seconds = {
        path: E2E_SECONDS_OF_A_FILE.get(path.stem, E2E_SECONDS_OF_A_TEST * count) for path, count in tests.items()
    }
    items.sort(key=lambda item: (-seconds[item.path], str(item.path)))
