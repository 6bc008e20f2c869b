"""Events on pods through events.k8s.io/v1: series, rate limits by namespace."""
