"""Make allocations fail that an earlier leader has sent and the API server has not received; run before the first decision."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import structlog

from dra_extender.ledger.ledger import Ledger
from dra_extender.ledger.state.claim_record import ClaimRecord
from dra_extender.model.claim_edits import MetadataChange
from dra_extender.model.snapshot import SNAPSHOT_ANNOTATION
from dra_extender.scheduling.claims.writer import ClaimWriter
from dra_extender.scheduling.ports.cluster import (
    Claims,
    ClusterError,
    ConflictError,
    NotFoundError,
    ServerUnavailableError,
)
from dra_extender.telemetry.metrics import Metrics

MOST_SECONDS: Final = 10.0
"""A tenant can annotate any number of claims, and a webhook can refuse every write; decisions wait no longer than this."""
_MOST_AT_ONCE: Final = 16
_AGAIN_SECONDS: Final = 0.5
_LOG = structlog.get_logger(__name__)


class Takeover:
    """Takes the snapshot off every claim that has one and no allocation.

    An allocation is sent after its snapshot was stored (`ClaimWriter.allocate`), in the version that the claim had then.
    """

    def __init__(self, ledger: Ledger, claims: Claims, metrics: Metrics) -> None:
        self._ledger = ledger
        self._claims = claims
        self._writer = ClaimWriter(ledger, claims, metrics)

    async def withdraw_snapshots(self) -> None:
        """Remove the snapshots; retry each write until the API server answers, for at most `MOST_SECONDS` in total.

        Namespaces take turns.  The ledger must contain every claim that the earlier leader has stored.
        """
        prepared = [
            record
            for record in self._ledger.claims.records()
            if record.claim.status.allocation is None and SNAPSHOT_ANNOTATION in record.claim.metadata.annotations
        ]
        waiting = iter(_in_turns(prepared))
        writers = [self._withdraw_all(waiting) for _ in prepared[:_MOST_AT_ONCE]]
        with suppress(TimeoutError):
            async with asyncio.timeout(MOST_SECONDS):
                await asyncio.gather(*writers)
                return
        _LOG.warning("some claims keep their snapshots", seconds=MOST_SECONDS, claims=len(prepared))

    async def _withdraw_all(self, waiting: Iterable[ClaimRecord]) -> None:
        for record in waiting:
            await self._withdraw(record)

    async def _withdraw(self, record: ClaimRecord) -> None:
        meta = record.claim.metadata
        change = MetadataChange(meta.uid, meta.resource_version, annotations={SNAPSHOT_ANNOTATION: None})
        while True:
            try:
                self._ledger.assume_written(await self._claims.update(*meta.key, change))
            except (ConflictError, NotFoundError):
                # The claim is in another version already.
                await self._writer.read_stored(record)
            except ServerUnavailableError:
                await asyncio.sleep(_AGAIN_SECONDS)
                continue
            except ClusterError as refused:
                _LOG.warning("a claim keeps its snapshot", claim="/".join(meta.key), problem=str(refused))
            return


def _in_turns(records: Iterable[ClaimRecord]) -> list[ClaimRecord]:
    """Return the first claim of each namespace, then the second of each, and so on."""
    seen: Counter[str] = Counter()
    turns = []
    for record in records:
        namespace = record.claim.metadata.namespace
        turns.append((seen[namespace], record))
        seen[namespace] += 1
    return [record for _, record in sorted(turns, key=lambda turn: turn[0])]
