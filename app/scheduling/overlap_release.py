from collections.abc import Sequence

import structlog

from app.ledger.ledger import Ledger
from app.model.pod import Pod
from app.scheduling.bind_decision import BindDecision
from app.scheduling.claim_lookup import FoundClaim
from app.scheduling.cool_downs import CoolDowns
from app.scheduling.giving_back import GivenBack, GivingBack
from app.scheduling.overlap import overlap
from app.telemetry.metrics import Metrics

_LOG = structlog.get_logger(__name__)


class OverlapRelease:
    """Releases what a bind has written and others were allocated first; the pod leaves the node alone after the second time."""

    def __init__(
        self, ledger: Ledger, decision: BindDecision, giving_back: GivingBack, cool_downs: CoolDowns, metrics: Metrics
    ) -> None:
        self._ledger = ledger
        self._decision = decision
        self._giving_back = giving_back
        self._cool_downs = cool_downs
        self._metrics = metrics

    async def __call__(self, found: Sequence[FoundClaim], pod: Pod, node: str) -> None:
        """Release each of these claims that overlaps others which came first, unless another pod runs on it already.

        Raises:
            GivenBack: there was one.
            TryAgain: the server could not be written to.
        """
        why = ""
        pools = self._decision.pools_of(node)
        for each in found:
            clash = overlap(each.record, self._ledger.claims, self._ledger.slices, pools)
            if clash is None or self._giving_back.runs_somewhere(each, pod):
                continue
            name = "/".join(each.record.claim.metadata.key)
            why = f"claim {name}: {clash.text}"
            self._metrics.overlap(clash.kind, "yielded", clash.writer)
            _LOG.warning("an allocation overlaps another one and is released", claim=name, node=node, **clash._asdict())
            await self._giving_back(each, pod)
        if why:
            self._cool_downs.nodes.undone(pod.uid, node)
            raise GivenBack(why)
