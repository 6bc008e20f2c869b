"""Holds: devices kept free for pods between filter and bind, among namespaces that wait for the same devices."""
