"""The rules that decide about one device: eligibility, taints, capacity, counters, compatibility groups, neighbours.

`verdict` answers what may be allocated beside what is allocated; filter, bind, the overlap check and the audit all ask it.
"""
