from dra_extender.allocator.demand.demand import Demand, SearchableRequest
from dra_extender.cel.analysis.attribute_reads import ANY_DOMAIN
from dra_extender.cel.program import Program
from dra_extender.cel.support.errors import CelCompileError

Reads = frozenset[str]
"""Attributes as domain/name; the domain `*` stands for the driver of the device."""


def reads_of(demand: Demand) -> Reads | None:
    """The attributes whose values can matter for a demand: in selectors, derived attributes and constraints; None for any."""
    options = [option for claim in demand.claims for request in claim.requests for option in request.options]
    names = {constraint.attribute for claim in demand.claims for constraint in claim.constraints}
    for program in (program for option in options for program in _programs(option)):
        if program.reads is None:
            return None
        names |= program.reads
    return frozenset(names)


def is_read(reads: Reads, driver: str, attribute: str) -> bool:
    """Whether an attribute, as a device of this driver publishes it, is among them."""
    domain, slash, name = attribute.rpartition("/")
    if not slash:
        domain = driver
    own = domain == driver and f"{ANY_DOMAIN}/{name}" in reads
    return own or attribute in reads or f"{domain}/{name}" in reads


def _programs(option: SearchableRequest) -> list[Program]:
    programs = [*option.selectors.programs, *(each.program for each in option.derived.values())]
    # What does not compile is not read by anything: it ends the search.
    return [each for each in programs if not isinstance(each, CelCompileError)]
