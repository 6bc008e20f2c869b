"""The registry: every native call on values whose time depends on their sizes.

Tests measure every entry of `NATIVES`.  An entry has a name, the kinds of its arguments, the call, and the function that states
its worst case in units of work; `entry(frame, *arguments)` charges and runs it as the libraries do.
"""

from typing import Final

from dra_extender.cel.library import formats, network, quantity, semver, time, url
from dra_extender.cel.native import lists, strings
from dra_extender.cel.native.call import Native

NATIVES: Final[tuple[Native, ...]] = (
    *strings.NATIVES,
    *lists.NATIVES,
    *quantity.NATIVES,
    *semver.NATIVES,
    *time.NATIVES,
    *network.NATIVES,
    *url.NATIVES,
    *formats.NATIVES,
)
