"""What is free, allocated and held right now, kept incrementally from watch events and from our own writes.

`ledger.Ledger` is the entrance; `sinks` feed it.  It has no clock and does no I/O.
"""
