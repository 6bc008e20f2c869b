import gc

import coverage
import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.controlplane.options import ControlPlaneOptions
from tests.support.examples import MORE, THOROUGH

pytest_plugins = ["tests.controlplane.plugin", "tests.support.judged_nodes", "tests.support.real_time"]

# How fast examples are made and answered says nothing about what they show, and depends on what else the machine does.
_ANY_MACHINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A change passes or fails by what it changes: the examples of `make test` are the same in each run, `make nightly` tries others.
settings.register_profile("quick", _ANY_MACHINE, derandomize=True)
settings.register_profile(THOROUGH, _ANY_MACHINE, max_examples=100 * MORE)
settings.load_profile("quick")

# By default the collector looks after 700 new objects, which takes a tenth of the time of all tests.
gc.set_threshold(20_000)

# The default shows every local variable of every frame, which takes seconds for one failure that a test brings about.
structlog.configure(
    processors=[
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(),
        structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback),
    ]
)

LONGEST_ID_OF_A_VALUE = 32
"""Characters of a parameter's text that stand in the id of a test."""

# Files, or single tests, that run the same lines many times.  Coverage, which other tests have of these lines, would make them
# three times as long.
WITHOUT_COVERAGE = {
    "test_bind_adversity",
    "test_compile_budget",
    "test_fairness",
    "test_hold_fairness",
    "test_hostile",
    "test_namespace_bytes",
    "test_order",
    "test_pauses",
    "test_program_cache",
    "test_result_cache",
    "test_story::test_binding_conditions_of_a_policy_hold_back_the_bind_where_the_server_stores_none",
    "test_story::test_stories_with_a_policy_need_nothing_of_the_api_server",
    "test_verdict_property",
}


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Return a short id that is the same in every process; None leaves the id to pytest.

    Workers of pytest-xdist refuse to run if they collect different ids. Bytes may contain a time or a random number, and a
    document of several lines is no name: the name of the parameter stands for them.
    """
    if isinstance(val, ControlPlaneOptions):
        return val.name
    if isinstance(val, bytes) or (isinstance(val, str) and "\n" in val):
        return argname
    if isinstance(val, (str, int)):
        text = str(val).encode("unicode_escape").decode()
        return text if len(text) <= LONGEST_ID_OF_A_VALUE else f"{text[: LONGEST_ID_OF_A_VALUE - 3]}..."
    return None


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Take the lock from coverage's tracer: a test process waited for it for ever, though no other thread was left to release it.

    The lock orders threads that add a file at the same moment; here one thread at a time runs what is measured.
    """
    measured = coverage.Coverage.current()
    collector = None if measured is None else measured._collector
    if collector is not None:
        collector.data_lock = None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave long repetitions out of the measured coverage."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        if not WITHOUT_COVERAGE.isdisjoint((item.path.stem, f"{item.path.stem}::{name}")):
            item.add_marker("no_cover")
