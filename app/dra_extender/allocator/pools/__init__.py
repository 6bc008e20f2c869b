"""Pools as one node sees them: their current slices, complete and valid or with their problem, and the devices."""
