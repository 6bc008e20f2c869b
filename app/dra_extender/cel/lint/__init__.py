"""Mistakes in expressions that can be found without devices."""
