"""Mistakes in an expression that can be found before any device is known."""
