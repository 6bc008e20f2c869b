"""`python -m dra_extender` is the command `dra-extender`."""

from dra_extender.cli.app import main

main()
