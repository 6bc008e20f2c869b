"""Releases what pods no longer use: allocations, reservations, claims made for extended resources."""
