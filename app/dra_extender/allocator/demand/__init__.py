"""What the claims of a pod ask for: validated requests, selectors, constraints."""
