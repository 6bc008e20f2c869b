"""Answers as lines for a terminal, tables and CSV."""
