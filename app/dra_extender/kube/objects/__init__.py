"""Reads and writes of one kind of object each."""
