"""The claims of a pod: which it needs, whether they are ready, and the writes to them."""
