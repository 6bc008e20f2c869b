"""A snapshot without the names of the cluster: every name has another one, in the same order."""
