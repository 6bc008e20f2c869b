"""A kube-scheduler extender that allocates devices for pods with ResourceClaims (Dynamic Resource Allocation)."""
