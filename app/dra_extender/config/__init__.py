"""What an administrator sets: the settings of the service, the device policy, and kube-scheduler's configuration.

All are read strictly: an unknown key or a value out of bounds is an error that names the field.  `scheduling_settings` has every
time limit that kube-scheduler and the service share; `scheduler_configuration` renders and reads a KubeSchedulerConfiguration,
which `scheduler_checks` compares with the settings.
"""
