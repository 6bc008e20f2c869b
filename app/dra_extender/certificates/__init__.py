"""Certificates where nobody else issues them: an authority, one for the service and one for kube-scheduler.

`issue` makes them, `renewal` decides which are due.  Keys are ECDSA on P-256: a handshake costs a fraction of one with RSA.
"""
