"""How many examples a property test tries, which depends on the profile of the run."""

from typing import Final

from hypothesis import settings

THOROUGH: Final = "thorough"
"""The profile of `make nightly`."""
MORE: Final = 10


def examples(count: int) -> settings:
    """Return settings for this many examples, and for `MORE` times as many in the thorough profile."""
    return settings(max_examples=count * (MORE if settings.get_current_profile_name() == THOROUGH else 1))
