"""Which rows each area can make, so that no document quotes another: `compare` refuses a row that is not declared here."""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

_SIZES: Final = r"\d+ nodes, \d+ (?:devices|pods)"
_TENANTS: Final = r"(?:pods without a device|quadratic text search|Unicode patterns|hard searches)"
_CEL: Final = r"(?:driver|driver and type|quantity|pattern|semver|has and in|ternary|exists|ten terms|geometric mean): evaluations"
CASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "allocator": (
            r"\d+ nodes, (?:empty|half of the devices taken|full|selector|matchAttribute over 5 requests"
            r"|partitions, with backtracking|consumable capacity|prioritized list|list attributes|compatibility groups"
            r"|claims shared by 5 pods|a fabric pool all nodes reach|equal but for serial numbers|heterogeneous), (?:cold|warm)"
            r"|blow-up: (?:32 of 31 devices|12 equal requests and an impossible one|the group that is large enough comes last"
            r"|8 requests of 8 alternatives and an impossible one|counters for 16 partitions, 17 wanted)"
            r"|\d+ to \d+ (?:nodes|devices of a node|claims of the pod|devices taken on a node): growth of the processor time"
        ),
        "binding": (
            r"condition True to Binding(?:, against in-tree)?|slice published to Binding of the pod that waits for it"
            r"|\d+ waiting binds: (?:memory|filter)"
        ),
        "cel": (
            rf"{_CEL}|geometric mean: compilation|\d+ cached programs|(?:slowest|largest) of \d+ hostile expressions"
        ),
        "claims": (
            r"(?:plain devices(?: until 98 % are in use)?|partitions|matchAttribute over three requests|firstAvailable"
            r"|compatibility groups)"
            rf", {_SIZES}"
        ),
        "filter": (
            r"\d+ nodes, (?:warm, each pod bound before the next|warm, nothing between the calls"
            r"|full cluster, all nodes refused)"
        ),
        "fits": (
            r"(?:default|multigpu50)(?: through kube-scheduler, \d+ nodes)?, at (?:100|130) % asked"
            r"|MIG on \d+ GPUs, \d+ events"
        ),
        "memory": (
            r"\d+ slices of \d+ devices: (?:resident|cold synchronisation)"
            r"|\d+ slices against \d+: (?:memory|cold synchronisation)"
            r"|\d+ nodes, a slice of \d+ devices and \d+ claims on each: resident"
        ),
        "offered-nodes": rf"{_SIZES}, .+ nodes offered",
        "page": rf"{_SIZES}: (?:Pending|a pod|Map|Node|Waiting|Health)",
        "see": (
            rf"{_SIZES}: (?:why, beside reading the file|reading the file"
            r"|(?:audit|devices|usage), beside reading the file and filling the ledger"
            r"|what-if with \d+ nodes more, \d+ copies of a pod placed, beside reading the file)"
            r"|\d+ nodes, \d+ pods: what-if(?: with \d+ nodes more|, what happens next)"
        ),
        "tenants": (
            rf"(?:no-op extender, |in-tree plugin, |in-tree plugin, default percentage, )?{_TENANTS}: "
            r"(?:created to bound|bound in a burst|attempts|filter|slowest /livez)|\d+ claims of 10 KiB: memory"
        ),
        "throughput": _SIZES,
        "tls": r"handshake of \d+ binds, each on a connection of its own",
        "tracing": r"off: the places of spans in an attempt|on: an attempt",
        "workloads": (
            r"\d+ group of \d+ pods, a shared claim|\d+ groups of \d+ pods, a claim each|\d+ gangs of \d+ pods"
        ),
    }
)
"""Area -> pattern of its cases."""


def is_declared(area: str, case: str) -> bool:
    return area in CASES and re.fullmatch(CASES[area], case) is not None
