"""Answers about a cluster from its API objects only: why a pod waits, what is where, and whether the cluster is sound.

The command line and the service use the same functions.  Decisions are the service's own: the objects enter a ledger of this
process as watch events do, and the extender's use cases are asked without a write.
"""
