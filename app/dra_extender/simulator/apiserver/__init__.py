"""The stored objects: defaults, validation, managed fields, immutability, watches."""
