"""Leader election by a Lease, and the EndpointSlice that leads kube-scheduler to the leader."""
