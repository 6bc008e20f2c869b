from app.model.resource_claim import ResourceClaim


class ExtendedClaims:
    """Which claims exist for the extended resources of which pod, by UID: those with the annotation that the pod controls."""

    def __init__(self) -> None:
        self._by_pod: dict[str, list[str]] = {}

    def of_pod(self, pod_uid: str) -> tuple[str, ...]:
        """UIDs of the claims, in the order in which they were seen first."""
        return tuple(self._by_pod.get(pod_uid, ()))

    def add(self, claim: ResourceClaim) -> None:
        """A claim appears."""
        owner = claim.extended_for
        if owner:
            self._by_pod.setdefault(owner, []).append(claim.metadata.uid)

    def drop(self, claim: ResourceClaim) -> None:
        """A claim is gone."""
        owner, uid = claim.extended_for, claim.metadata.uid
        left = [each for each in self._by_pod.pop(owner, ()) if each != uid]
        if left:
            self._by_pod[owner] = left
