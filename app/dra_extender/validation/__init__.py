"""What an API server of Kubernetes 1.37 refuses: unknown fields, wrong values, and rules between the fields of one object."""
