"""What kube-controller-manager does for claims: it creates them from templates and removes reservations."""
