"""kube-scheduler's own configuration: rendered from the settings, and checked against them.

`render` writes a KubeSchedulerConfiguration, `validate` reports what in an existing one contradicts the settings.  `extenders`
knows the fields of one entry of `extenders`.
"""
