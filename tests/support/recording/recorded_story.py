"""A story of the demo, recorded from the real service over real HTTP."""

from pathlib import Path

from dra_extender.cli.demo_stories import Playing, Story, examples, play
from dra_extender.config.settings import load_settings


async def record_story(name: str, file: Path, **recording: int) -> None:
    """Play the story whose file name begins with `name`, and record it to the file."""
    story = next(each for each in examples() if each.title.startswith(name))
    await record(story, file, **recording)


async def record(story: Story, file: Path, **recording: int) -> None:
    """Play a story and record it; `recording` are further settings of the recording."""
    flags = {"server": {"host": "127.0.0.1", "port": 0}, "recording": {"file": file, **recording}}
    (result,) = await play([story], Playing(37, load_settings(None, flags)))
    assert result.failures == 0
