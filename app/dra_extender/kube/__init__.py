"""Adapters to a real API server: they implement `scheduling.ports` and feed the ledger.

`cluster.KubeCluster` is the entrance.  Only this package knows the Kubernetes client.
"""
