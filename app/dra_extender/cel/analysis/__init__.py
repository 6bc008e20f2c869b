"""Questions about an expression that need no device: which attributes it reads, and how design documents spell them."""
