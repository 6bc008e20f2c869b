"""What all parts of the CEL engine use: the tree of exceptions, and texts as Go writes them."""
