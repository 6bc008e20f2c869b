"""Metrics and logs.

`catalog` lists every metric once; `metrics` counts.  The package is called by others and imports none of them.
"""
