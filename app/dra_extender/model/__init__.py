"""Frozen values read from API objects, and back.

Nothing here does I/O, reads a clock or imports another room.  Amounts are integer nano-units (`quantity`), API times stay the
RFC 3339 text of the server.  Unknown fields are tolerated when reading; writing starts from the raw object (`writeback`), so no
field that this program does not know is ever dropped.
"""
