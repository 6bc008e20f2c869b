"""The program `dra-extender`: `app` finds the modules in `commands`, and `demo_stories` plays what the demo shows."""
