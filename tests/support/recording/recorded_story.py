"""A story of the demo, recorded from the real service over real HTTP."""

from pathlib import Path
from typing import Final

from dra_extender.cli.demo_stories import Playing, Story, examples, play
from dra_extender.config.settings import load_settings

SLICE_SECONDS: Final = 60.0
"""A replay does not pause searches, so that none may be paused on a busy machine."""


async def record_story(name: str, file: Path, **recording: int) -> None:
    """Play the story whose file name begins with `name`, and record it to the file."""
    story = next(each for each in examples() if each.title.startswith(name))
    await record(story, file, **recording)


async def record(story: Story, file: Path, **recording: int) -> None:
    """Play a story and record it; `recording` are further settings of the recording."""
    flags = {"server": {"host": "127.0.0.1", "port": 0}, "recording": {"file": file, **recording}}
    settings = load_settings(None, flags)
    scheduling = settings.scheduling.model_copy(update={"search_slice_seconds": SLICE_SECONDS})
    settings = settings.model_copy(update={"scheduling": scheduling})
    (result,) = await play([story], Playing(37, settings))
    assert result.failures == 0
