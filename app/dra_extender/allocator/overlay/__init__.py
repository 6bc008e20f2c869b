"""Overlays on published devices: an administrator's policy, and the taints of DeviceTaintRules."""
