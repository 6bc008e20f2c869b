import asyncio
from collections.abc import Callable, Mapping

import pytest
from dra_extender.simulator.virtual_time import VirtualClockLoop


def pytest_asyncio_loop_factories(
    config: object,
    item: pytest.Item,
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Play stories in virtual time, as the demo does; a real control plane needs real time."""
    if item.get_closest_marker("e2e") is not None:
        return {"real time": asyncio.new_event_loop}
    return {"virtual time": VirtualClockLoop}
