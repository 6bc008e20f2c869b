"""Stories in manifests: load them, run them, compare with their expectations, report."""
