"""Explanations of nodes that do not fit: shortfalls, reasons by device, messages."""
