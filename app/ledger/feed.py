from typing import Protocol


class Feed(Protocol):
    """The entrance of one kind of object into the ledger."""

    def changed(self, data: bytes) -> None:
        """One object was added or modified; `data` is its JSON.

        Raises:
            ModelError: the object cannot be read; nothing has changed.
        """
        ...

    def deleted(self, namespace: str, name: str, uid: str) -> None:
        """An object is gone; `uid` may be empty if it is not known."""
        ...

    def synced(self) -> None:
        """A list has been delivered completely."""
        ...
