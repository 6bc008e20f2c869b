"""Frozen values read from API objects, and the edits that go back.

The structs of the model are the one description of the fields of API objects (`fields`): decoding, the checks of manifests, what
snapshots keep and redaction follow from it.

Nothing here does I/O, reads a clock or imports another package of the program but the CEL engine.  Amounts are integer nano-units;
times of the API stay the RFC 3339 text of the server.  Functions called `read_...` take the JSON of an object, tolerate unknown
fields, and raise ModelError, whose message names the field, where it cannot be read.  Writing starts from the stored object
(`claim_edits`), so a field that this program does not know is never dropped.
"""
