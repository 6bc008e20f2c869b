"""Metrics, logs and spans.

`metrics` counts: each metric is declared in the class whose method records it.  `logging` sets the format of log lines.  The
package is called by others; it imports what escapes texts for a terminal, token buckets and caches.
"""
