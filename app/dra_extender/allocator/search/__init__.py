"""The depth-first search for the first solution, and what cuts it short.

`search` walks frames over one `search_state`; `pruning` and `bounds` prove that a branch is a dead end.
"""
