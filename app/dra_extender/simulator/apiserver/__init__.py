"""An API server in memory: defaults, validation, managed fields, immutability, watches."""
