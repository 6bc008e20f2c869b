"""Checks the invariants of a cluster from its API objects only: no device is allocated twice, no pod runs without its claims.

The rules that say what may be allocated together are the allocator's.
"""
