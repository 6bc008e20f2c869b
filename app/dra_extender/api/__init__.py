"""The HTTP interface: the extender verbs of kube-scheduler, health and metrics.

`application` builds the FastAPI application.  `protocol` holds the wire types of the extender protocol, `dispatch` runs a verb
and turns its result or error into an answer.
"""
