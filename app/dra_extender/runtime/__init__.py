"""What long-running asyncio code needs and Kubernetes knows nothing of: supervised tasks, clocks and token buckets.

The package imports no other package of the program.
"""
