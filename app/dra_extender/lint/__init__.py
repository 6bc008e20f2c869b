"""Lint of manifests and policy files: `lint_files` finds mistakes in their CEL expressions and rules."""
