from app.allocator.demand import Demand, Wanted
from app.cel import CelCompileError
from app.cel.reads import ANY_DOMAIN, attributes_read

Reads = frozenset[str]
"""Attributes as domain/name; the domain `*` stands for the driver of the device."""


def reads_of(demand: Demand) -> Reads | None:
    """The attributes whose values can matter for a demand: in selectors, derived attributes and constraints; None for any."""
    options = [option for claim in demand.claims for request in claim.requests for option in request.options]
    names = {constraint.attribute for claim in demand.claims for constraint in claim.constraints}
    for expression in {expression for option in options for expression in _expressions(option)}:
        found = attributes_read(expression)
        if found is None:
            return None
        names |= found
    return frozenset(names)


def is_read(reads: Reads, driver: str, attribute: str) -> bool:
    """Whether an attribute, as a device of this driver publishes it, is among them."""
    domain, slash, name = attribute.rpartition("/")
    if not slash:
        domain = driver
    own = domain == driver and f"{ANY_DOMAIN}/{name}" in reads
    return own or attribute in reads or f"{domain}/{name}" in reads


def _expressions(option: Wanted) -> list[str]:
    programs = [*option.selectors.programs, *(each.program for each in option.derived.values())]
    # What does not compile is not read by anything: it ends the search.
    return [each.expression for each in programs if not isinstance(each, CelCompileError)]
