"""A page on loopback that shows what `inspection` answers: six views, rendered on the server, live by server-sent events.

It runs in a process of its own; the service renders no HTML.
"""
