"""What the service saw and answered, written to a file, and the same played again through the ledger and the use cases.

A recording has every watch delivery, every call of kube-scheduler with its answer, every request to the API server with its
outcome, and what clocks showed.  A replay has no clock and no network of its own: time is that of the recording.
"""
