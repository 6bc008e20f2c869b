"""A cluster in memory behind the same ports: a small API server, controllers and a scheduling loop.

`what-if` and `why` try changes in it, the demo and the tests run on it.  The service never does.
"""
