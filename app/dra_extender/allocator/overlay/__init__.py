"""What an administrator's policy and DeviceTaintRules add to published devices."""
