"""Tells people about claims whose two snapshots of compatibility groups differ."""

import structlog

from dra_extender.ledger.ledger import Ledger
from dra_extender.telemetry.metrics import Metrics

_LOG = structlog.get_logger(__name__)


class SnapshotReports:
    """A metric, and a line in the log for each such claim, when the metrics are read.

    The groups in the allocation count, which nobody can change; the annotation can be edited by whoever may edit the claim.
    """

    def __init__(self, ledger: Ledger, metrics: Metrics) -> None:
        self._claims = ledger.claims
        self._metrics = metrics
        self._told: frozenset[str] = frozenset()
        metrics.before_render(self._report)

    def _report(self) -> None:
        contradicted = self._claims.contradicted
        self._metrics.contradicted(len(contradicted))
        for uid, device in contradicted.items():
            record = self._claims.by_uid(uid)
            if uid not in self._told and record is not None:
                claim = "/".join(record.claim.metadata.key)
                _LOG.warning(
                    "the groups of an allocation and of its annotation differ", claim=claim, device="/".join(device)
                )
        self._told = frozenset(contradicted)
