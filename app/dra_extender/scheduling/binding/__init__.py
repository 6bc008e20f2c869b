"""The bind call: decide, write the claims, wait for binding conditions, resolve conflicts, bind."""
