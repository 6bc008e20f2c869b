"""From a typed syntax tree to Python closures that evaluate it and count its cost."""
