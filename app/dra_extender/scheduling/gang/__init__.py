"""Gangs: all members of a PodGroup are planned together, and each is offered the node of its plan."""
