pytest_plugins = ["tests.controlplane.plugin"]
