"""One running replica: it wires the parts together, starts and stops them, and serves HTTP.

`wiring` builds everything from the settings, `service` holds the order of start, leadership and stop.  Nothing else imports
this package except the command line.
"""
