"""What the use cases need from outside: a cluster, a clock, options; and the errors that they raise."""
