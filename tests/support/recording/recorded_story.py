"""A story of the demo, recorded from the real service over real HTTP."""

import asyncio
from pathlib import Path
from typing import Final

from dra_extender.cli.demo_stories import Playing, Story, examples, play
from dra_extender.config.settings import load_settings
from dra_extender.simulator.demo.results import StoryResult
from dra_extender.simulator.virtual_time import VirtualClockLoop

SHORT_SLICE: Final = 0.0003
"""Seconds of a slice in which a search does a few steps: virtual time passes by 0.0001 s whenever the clock is read."""


async def record_story(name: str, file: Path, slice_seconds: float | None = None) -> None:
    """Play the story whose file name begins with `name`, and record it to the file; searches pause after so many seconds."""
    story = next(each for each in examples() if each.title.startswith(name))
    await record(story, file, slice_seconds)


async def record(story: Story, file: Path, slice_seconds: float | None = None) -> None:
    """Play a story and record it; what it expects holds, unless searches pause: how long they may go on depends on the machine."""
    flags: dict[str, dict[str, object]] = {"server": {"host": "127.0.0.1", "port": 0}, "recording": {"file": file}}
    settings = load_settings(None, flags)
    if slice_seconds is not None:
        scheduling = settings.scheduling.model_copy(update={"search_slice_seconds": slice_seconds})
        settings = settings.model_copy(update={"scheduling": scheduling})
    (result,) = await asyncio.to_thread(_play, story, Playing(37, settings))
    assert result.failures == 0 or slice_seconds is not None


def _play(story: Story, playing: Playing) -> list[StoryResult]:
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(play([story], playing))
