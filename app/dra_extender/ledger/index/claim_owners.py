from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from dra_extender.model.resource_claim import ClaimHead

K = TypeVar("K", bound=Hashable)


class ClaimsByOwner(Generic[K]):
    """UIDs of the claims that say of themselves for whom they exist: by that, as it is read from each claim in its present form.

    Whoever may change a claim may change what it says.  So each claim is remembered with the key under which it stands here.
    """

    def __init__(self, owner_of: Callable[[ClaimHead], K | None]) -> None:
        """`owner_of` returns the key of a claim, None if it exists for nobody."""
        self._owner_of = owner_of
        self._claims: dict[K, tuple[str, ...]] = {}
        self._keys: dict[str, K] = {}

    def of(self, owner: K) -> tuple[str, ...]:
        """UIDs of the claims for this owner, in the order in which they came to be."""
        return self._claims.get(owner, ())

    def put(self, claim: ClaimHead) -> None:
        """A claim appears or changes."""
        uid, key = claim.metadata.uid, self._owner_of(claim)
        if self._keys.get(uid) == key:
            return
        self.drop(uid)
        if key is not None:
            self._claims[key] = (*self._claims.get(key, ()), uid)
            self._keys[uid] = key

    def drop(self, uid: str) -> None:
        """A claim is gone."""
        key = self._keys.pop(uid, None)
        if key is None:
            return
        left = tuple(each for each in self._claims.pop(key) if each != uid)
        if left:
            self._claims[key] = left
