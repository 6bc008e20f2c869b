"""The registry: every native call on values whose time depends on their sizes.

`NATIVES` is for whoever wants to measure them: each entry has a name, the kinds of its arguments, the call and the function
that states its worst case in units of work; `entry(frame, *arguments)` charges and runs it as the libraries do.
"""

from typing import Final

from dra_extender.cel.library import formats as library_format
from dra_extender.cel.library import network as library_network
from dra_extender.cel.library import quantity as library_quantity
from dra_extender.cel.library import semver as library_semver
from dra_extender.cel.library import time as library_time
from dra_extender.cel.library import url as library_url
from dra_extender.cel.native import lists as native_lists
from dra_extender.cel.native import strings as native_texts
from dra_extender.cel.native.call import Native

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
