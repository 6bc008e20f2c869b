"""Errors, limits, quoting and bounded caches, which all parts of the CEL engine use."""
