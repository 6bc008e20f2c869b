"""Calls into C code whose time depends on their arguments: text search, regular expressions, membership, sorting.

Each states its worst case from the sizes of its inputs and charges it before it runs. No other module of the engine makes such
calls.
"""
