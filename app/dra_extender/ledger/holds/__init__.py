"""Devices that are held for pods between filter and bind."""
