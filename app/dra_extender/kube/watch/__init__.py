"""List and watch: one reflector per kind, and the dispatch of events to the ledger's sinks."""
