"""The values and tables that the indexes share: usage, node versions, what is kept of a claim."""
