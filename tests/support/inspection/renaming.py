"""Answers about a redacted cluster, with the names of the cluster put back."""

import re
from random import Random

import msgspec
from dra_extender.inspection.cluster_view import ClusterView, InspectionClock, served_fields
from dra_extender.inspection.devices import devices_report
from dra_extender.inspection.objects import ClusterObjects
from dra_extender.inspection.redaction.redact import Redacted, redacted
from dra_extender.inspection.why.why import why
from dra_extender.model.metadata import encoded_moment
from dra_extender.simulator.apiserver.cluster import MemoryCluster


def redacted_with(objects: ClusterObjects, seed: int = 0) -> Redacted:
    """The objects with names that this seed draws."""
    return redacted(objects, Random(seed))


class NamesPutBack:
    """Puts the names of the cluster back into texts."""

    def __init__(self, done: Redacted) -> None:
        tables = (done.names.texts, done.names.members, done.names.resources)
        self._names = {new: name for table in tables for name, new in table.new_names.items() if new != name}
        self._names |= {other: version for version, other in done.names.versions.items()}
        longest_first = sorted(self._names, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")

    def into(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._names[found[0]], text)


def timeless_view(objects: ClusterObjects) -> ClusterView:
    """The cluster while no time goes by: what is looked for in so many seconds is found on a busy machine, too."""
    clock = InspectionClock(objects.origin.taken_at, lambda: 0.0)
    return ClusterView(objects, cluster=MemoryCluster(clock=clock, served=served_fields(objects.origin)))


def answers(objects: ClusterObjects) -> list[str]:
    """What is said of every pod, of each node for each pod, and of all devices; without where the objects come from."""
    view = timeless_view(objects)
    found = []
    for pod in sorted(view.ledger.pods.all(), key=lambda each: each.key):
        report = msgspec.structs.replace(why(view, pod.namespace, pod.name), origin=None)
        found.append(msgspec.json.encode(report, enc_hook=encoded_moment).decode())
        if not pod.node_name:
            result = view.evaluate(pod)
            found.append(msgspec.json.encode((list(result.fits), dict(result.texts))).decode())
    found.append(
        msgspec.json.encode(
            msgspec.structs.replace(devices_report(view), origin=None), enc_hook=encoded_moment
        ).decode()
    )
    return found
