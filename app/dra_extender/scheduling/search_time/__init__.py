"""How long a search may go on: deadlines of calls, and the share of time of each namespace."""
