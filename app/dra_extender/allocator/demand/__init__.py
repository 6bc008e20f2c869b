"""Demand of the claims of a pod: validated requests, selectors and constraints."""
