"""The registry: every native call on values whose time depends on their sizes.

`NATIVES` is for whoever wants to measure them: each entry has a name, the kinds of its arguments, the call and the function
that states its worst case in units of work; `entry(frame, *arguments)` charges and runs it as the libraries do.
"""

from typing import Final

from dra_extender.cel import (
    library_format,
    library_network,
    library_quantity,
    library_semver,
    library_time,
    library_url,
    native_lists,
    native_texts,
)
from dra_extender.cel.native import Native

NATIVES: Final[tuple[Native, ...]] = (
    *native_texts.NATIVES,
    *native_lists.NATIVES,
    *library_quantity.NATIVES,
    *library_semver.NATIVES,
    *library_time.NATIVES,
    *library_network.NATIVES,
    *library_url.NATIVES,
    *library_format.NATIVES,
)
