"""Indexes from keys to sets of members, in which no key has an empty set."""

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def discard_member(index: dict[K, set[V]], key: K, member: V) -> None:
    """Remove a member from the set under this key, and the key with its last member."""
    members = index.get(key)
    if members is not None:
        members.discard(member)
        if not members:
            del index[key]
