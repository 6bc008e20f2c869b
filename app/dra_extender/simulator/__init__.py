"""A cluster in memory behind the same ports: a small API server, controllers and a scheduling loop.

The demo, the tests and labelled scenarios use it.  The service never does.
"""
