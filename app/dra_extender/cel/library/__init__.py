"""The functions that expressions may call, a module per library, and the release in which each appears (`environment`)."""
