"""Calls into C code whose time depends on their arguments: text search, regular expressions, membership, sorting.

Each states its worst case from the sizes of its inputs and charges it before it runs.  Other modules of the engine make such calls
only where the work was charged or is bounded before; the tests of this package list these places with their reasons.
"""
