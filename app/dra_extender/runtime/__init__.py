"""What long-running asyncio code needs and Kubernetes knows nothing of: supervised tasks, clocks, token buckets and caches.

The package imports no other package of the program.
"""
