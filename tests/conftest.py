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
