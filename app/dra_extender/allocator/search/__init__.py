"""The depth-first search for the first solution, and what cuts it short.

`search` walks `frames` over one `search_state`; after many dead ends `pruner` finds what it may skip, by `pruning` and `bounds`.
"""
