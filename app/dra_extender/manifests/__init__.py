"""Objects that people write: YAML with the position of every field, and what an API server of Kubernetes 1.37 refuses in it.

The demo, `what-if` and `dra-extender lint` share this package.  Errors name the file, the line and the field.
"""
