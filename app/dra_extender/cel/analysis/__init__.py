"""Questions about an expression that need no device: which attributes it reads, and the suffix form of design documents."""
