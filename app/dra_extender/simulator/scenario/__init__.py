"""One labelled scenario: build the state, ask, print the answer as JSON."""
