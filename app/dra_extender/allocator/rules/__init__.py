"""The rules that decide about one device: eligibility, taints, capacity, counters, compatibility groups, neighbours.

`violations` decides what may be allocated beside what is allocated, for bind, the release of conflicting allocations and the audit.
"""
