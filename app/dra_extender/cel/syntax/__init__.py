"""From the text of an expression to an untyped syntax tree, and back to text."""
