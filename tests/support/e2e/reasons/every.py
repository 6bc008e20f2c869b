"""All constructed reasons."""

from typing import Final

from tests.support.e2e.reasons import beside, claims, matching, shares

REASONS: Final = (*matching.REASONS, *shares.REASONS, *claims.REASONS, *beside.REASONS)
