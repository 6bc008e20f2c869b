from app.model.generated_claim import generated_for
from app.model.resource_claim import ResourceClaim


class GeneratedClaims:
    """Which claims were made from templates, by the UID of the pod or PodGroup that controls them and its entry.

    What a claim says of that when it is seen first counts for as long as it exists.
    """

    def __init__(self) -> None:
        self._claims: dict[tuple[str, str], tuple[str, ...]] = {}
        self._entries: dict[str, tuple[str, str]] = {}

    def of_entry(self, owner_uid: str, entry: str) -> tuple[str, ...]:
        """UIDs of the claims made for this entry, in the order in which they were seen first."""
        return self._claims.get((owner_uid, entry), ())

    def add(self, claim: ResourceClaim) -> None:
        """A claim appears."""
        key = generated_for(claim)
        if key is not None:
            self._claims[key] = (*self._claims.get(key, ()), claim.metadata.uid)
            self._entries[claim.metadata.uid] = key

    def drop(self, claim: ResourceClaim) -> None:
        """A claim is gone."""
        uid = claim.metadata.uid
        key = self._entries.pop(uid, None)
        if key is None:
            return
        left = tuple(each for each in self._claims.pop(key) if each != uid)
        if left:
            self._claims[key] = left
