"""The HTTP interface: the extender verbs of kube-scheduler, health and metrics.

`application` has the routes.  `verbs` decodes the requests of the extender protocol (`protocol`) and asks the extender; `calls`
turns results and errors into answers.
"""
