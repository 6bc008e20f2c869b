from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.controlplane.plugin"]

# How fast examples are made and answered says nothing about what they show, and depends on what else the machine does.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
