"""What an administrator sets: the settings of the service and the device policy.

Both are read strictly: an unknown key or a value out of bounds is an error that names the field.  `scheduling_settings` has every
time limit that kube-scheduler and the service share.
"""
