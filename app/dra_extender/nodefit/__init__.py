"""Node fit: whether kube-scheduler's own filters let a pod on a node, as far as API objects tell."""
