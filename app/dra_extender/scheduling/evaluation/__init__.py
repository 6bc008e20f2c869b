"""One question about many nodes: does the pod fit, with which devices, and how good is the node?

Results are cached by node version; nodes that are equivalent are searched once.
"""
