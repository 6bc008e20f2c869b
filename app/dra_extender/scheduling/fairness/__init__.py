"""Holds among namespaces: each has a share of a contended pool, and stale holds are revoked."""
