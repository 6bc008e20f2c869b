"""The use cases behind the extender verbs: filter, prioritize, bind, preempt, and what runs in the background.

`extender.Extender` is the entrance.  The package reaches the cluster through the protocols in `ports` and knows neither HTTP nor
the Kubernetes client.
"""
