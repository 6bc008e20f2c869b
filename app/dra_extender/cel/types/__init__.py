"""The type checker: from the untyped syntax tree to a typed one, with every overload resolved."""
