"""Stories played as the demo plays them: on a cluster in memory, by the service behind HTTP."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from dra_extender.cli.demo_stories import serve, with_policy
from dra_extender.config.service_settings import ServerSettings
from dra_extender.config.settings import Settings
from dra_extender.simulator.apiserver.served_fields import Served
from dra_extender.simulator.demo.document import Manifests
from dra_extender.simulator.demo.manifests import load_texts
from dra_extender.simulator.demo.results import ApplyEffect, StoryResult, StoryStep
from dra_extender.simulator.demo.runner import run_story

SETTINGS: Final = Settings(server=ServerSettings(host="127.0.0.1", port=0))


async def play(
    story: str | Manifests,
    policy: Path | None = None,
    served: Served | None = None,
    observe: Callable[[StoryStep], None] = lambda _: None,
) -> StoryResult:
    manifests = load_texts([("story.yaml", story)]) if isinstance(story, str) else story
    factory = partial(serve, settings=with_policy(SETTINGS, policy))
    return await run_story("story", manifests, factory, served=served, observe=observe)


def failures(result: StoryResult) -> list[str]:
    """Refusals, and expectations that do not hold."""
    refused = [f"line {step.line}: {step.refusal}" for step in result.steps if step.effect is ApplyEffect.REFUSED]
    return refused + [f"{each.pod} {each.expected}: {each.failure}" for each in result.checks if each.failure]
