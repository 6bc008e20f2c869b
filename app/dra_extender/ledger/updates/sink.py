from typing import Protocol


class EventSink(Protocol):
    """Takes what a list and watch of one kind deliver, in order, one object a call.

    Calls are synchronous, come from the event loop, and must be short.  An object is announced once for each of its
    resourceVersions; a recreated object is announced as deleted under its old UID first.
    """

    def changed(self, data: bytes) -> None:
        """One object as the API server sent it (JSON), added or modified; items of a list carry no kind and apiVersion.

        Raises:
            ModelError: the object cannot be read; what was known of it stays, and it is not announced again before it changes.
        """
        ...

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """The object is gone; also told for objects that vanished while nobody watched.  The namespace may be empty."""
        ...

    def synced(self) -> None:
        """A list has been delivered completely: all that exists was announced.  Called after every list, not only the first."""
        ...

    def absent(self) -> None:
        """The server does not serve this kind: nothing will be announced."""
        ...
