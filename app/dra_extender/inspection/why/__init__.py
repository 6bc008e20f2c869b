"""Why a pod waits: the cause, the nodes by reason with the device that came closest, and what would help."""
