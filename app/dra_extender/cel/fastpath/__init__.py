"""Closures without cost accounting for the selectors that clusters use most: comparisons of attributes, joined by `&&` and `||`.

An expression whose cost could reach a limit never takes this path.
"""
