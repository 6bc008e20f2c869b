"""The claims of a pod: which it needs, extended resources included, whether they are ready, and the writes to them."""
