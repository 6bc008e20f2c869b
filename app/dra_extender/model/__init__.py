"""Frozen values read from API objects, and the edits that go back.

Nothing here does I/O, reads a clock or imports another package of the program.  Amounts are integer nano-units (`quantity`);
times of the API stay the RFC 3339 text of the server.  Reading tolerates unknown fields.  Writing starts from the stored object
(`claim_edits`), so a field that this program does not know is never dropped.
"""
