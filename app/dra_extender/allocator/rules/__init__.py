"""The rules that decide about one device: eligibility, taints, capacity, counters, compatibility groups, neighbours.

`verdict` decides what may be allocated beside what is allocated; bind, the release of conflicting allocations and the audit use it.
"""
