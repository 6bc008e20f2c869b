"""Gangs: all members of a PodGroup are planned together, and none is bound before `minCount` members have their devices."""
