"""The depth-first search for the first solution, and what cuts it short.

After many dead ends `search` asks `feasibility` once, and then skips what `pruning` knows to fail.
"""
