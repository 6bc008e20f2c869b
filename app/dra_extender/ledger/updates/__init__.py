"""Where watch events enter the ledger: one sink per kind."""
