"""The values that expressions compute with: a module for each kind."""
