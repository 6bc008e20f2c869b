"""Lint of manifests and policy files: `report.lint_files` finds mistakes in their CEL expressions and rules."""
