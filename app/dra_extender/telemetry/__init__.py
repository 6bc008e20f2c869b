"""Metrics and logs.

`metrics` counts: each metric is declared in the class whose method records it.  `logging` sets the format of log lines.  The
package is called by others and imports none of them.
"""
