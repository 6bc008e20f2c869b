"""YAML that people write: documents, their positions in the file, and the fields that they must have.

The demo and `dra-extender lint` share this package.  Errors name the file, the line and the field.
"""
