"""Why an expression is true, false or in error for one device, as a tree of sentences."""
