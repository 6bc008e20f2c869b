"""Whether kube-scheduler's own filters let pods that wait for a node on some node: members of PodGroups, and pods with claims."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from dra_extender.cel.cost import Deadline
from dra_extender.model.digest import digest_of
from dra_extender.model.pod import Pod, is_extended
from dra_extender.nodefit.node_fit import UNLISTED, FitNode, aggregated, read_fit_node, reported
from dra_extender.nodefit.pod_needs import PodNeeds, read_pod_needs
from dra_extender.runtime.caches import LruCache

_MOST_ANSWERS: Final = 1_000
_LARGEST_NEEDS: Final = 4_096
"""Bytes of JSON.  Larger needs, such as thousands of requirements on labels, are compared with no node: there may be thousands."""
NODES_PER_STEP: Final = 32
"""Nodes that are compared with a pod before its judgement may pause again: 0.15 ms, or 2 ms for the largest needs."""


class _Member(NamedTuple):
    """What a pod needs of a node, None if it is too much to be judged; pods with an equal `digest` need the same."""

    needs: PodNeeds | None
    digest: bytes


class _Judgement(NamedTuple):
    """A judgement that has begun: the nodes still to be compared, and why the others refuse the pod."""

    nodes: Iterator[FitNode]
    reasons: Counter[str]


class MemberFit:
    """Nodes as kube-scheduler's own filters read them, and what waiting members of PodGroups and pods with claims need of a node.

    What other pods take of a node does not count: a refusal holds as long as neither the nodes nor the member change.  Extended
    resources do not count, because device classes may serve them.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, FitNode] = {}
        self._members: dict[str, _Member] = {}
        # Pods that need devices and are members of no PodGroup.
        self._others: dict[str, _Member] = {}
        self._answers: LruCache[bytes, str] = LruCache(_MOST_ANSWERS)
        self._begun: LruCache[bytes, _Judgement] = LruCache(_MOST_ANSWERS)

    def put_node(self, data: bytes) -> bool:
        """Add or replace a node (API JSON); returns whether a waiting member may fit now that did not before."""
        node = read_fit_node(data, UNLISTED)
        if self._nodes.get(node.name) == node:
            return False
        self._nodes[node.name] = node
        self._forget_answers()
        return bool(self._members)

    def drop_node(self, name: str) -> None:
        if self._nodes.pop(name, None) is not None:
            self._forget_answers()

    def allocatable(self, name: str) -> Mapping[str, int]:
        """Return what the node has by resource, in nano-units; nothing of a node that is not known."""
        node = self._nodes.get(name)
        return {} if node is None else node.allocatable

    def closed(self, name: str) -> str:
        """Return why the node takes no ordinary pod because of its state (see FitNode); empty if it does or is not known."""
        node = self._nodes.get(name)
        return "" if node is None else node.closed

    def put_pod(self, pod: Pod, data: bytes) -> bool:
        """Add, replace or remove the pod in `data` (API JSON); returns whether a member needs something else than before."""
        before = self._members.pop(pod.uid, None)
        self._others.pop(pod.uid, None)
        is_member = pod.pod_group is not None
        if not (is_member or pod.needs_devices) or pod.node_name or pod.finished:
            return False
        needs = read_pod_needs(data)
        amounts = {name: amount for name, amount in needs.amounts.items() if not is_extended(name)}
        needs = msgspec.structs.replace(needs, key="", amounts=amounts)
        # Not the content itself: answers are kept for pods that are gone, and a pod may need a megabyte.
        content = msgspec.json.encode(needs, order="deterministic")
        member = _Member(needs if len(content) <= _LARGEST_NEEDS else None, digest_of(content))
        (self._members if is_member else self._others)[pod.uid] = member
        return before is not None and before.digest != member.digest

    def drop_pod(self, uid: str) -> None:
        self._members.pop(uid, None)
        self._others.pop(uid, None)

    def refusal(self, uid: str, deadline: Deadline | None = None) -> str:
        """Return why every node refuses the pod, as kube-scheduler reports it; empty if one may take it, or if nothing is known.

        If the deadline raises SearchPaused, the next question about such a pod goes on from there; if it says that the time is up,
        nothing is known.
        """
        member = self._member(uid)
        if member is None or member.needs is None or not self._nodes:
            return ""
        digest = member.digest
        answer = self._answers.get(digest)
        if answer is not None:
            return answer
        judgement = self._begun.get(digest)
        if judgement is None:
            judgement = self._begun[digest] = _Judgement(iter(self._nodes.values()), Counter())
        while answer is None:
            if deadline is not None and deadline():
                return ""
            answer = self._judge_step(member.needs, judgement)
        self._answers[digest] = answer
        self._begun.pop(digest, None)
        return answer

    def _judge_step(self, needs: PodNeeds, judgement: _Judgement) -> str | None:
        """Compare the next nodes with the pod; return the answer, None if further nodes are to be compared."""
        nodes = list(islice(judgement.nodes, NODES_PER_STEP))
        for node in nodes:
            texts = reported(node.refusals(needs, {}, ()))
            if not texts:
                return ""
            judgement.reasons.update(texts)
        return None if len(nodes) == NODES_PER_STEP else aggregated(len(self._nodes), judgement.reasons.elements())

    def _forget_answers(self) -> None:
        self._answers.clear()
        self._begun.clear()

    def digest(self, uid: str) -> bytes:
        """Return a digest that is equal for pods that need the same of a node; empty if nothing is known of the pod."""
        member = self._member(uid)
        return b"" if member is None else member.digest

    def admits(self, uid: str, node: str) -> bool:
        """Return whether this node may take the pod; also if nothing is known of one of them."""
        member, fit_node = self._member(uid), self._nodes.get(node)
        if member is None or member.needs is None or fit_node is None:
            return True
        return next(fit_node.refusals(member.needs, {}, ()), None) is None

    def _member(self, uid: str) -> _Member | None:
        return self._members.get(uid) or self._others.get(uid)
