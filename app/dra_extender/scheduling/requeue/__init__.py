"""Pods that were rejected: why, their Events, and what wakes them."""
