import json
from pathlib import Path

import pytest
from dra_extender.config.scheduler_configuration import SchedulerSetup, render
from dra_extender.config.scheduling_settings import SchedulingSettings
from dra_extender.config.service_settings import LeaderElectionSettings, ServerSettings
from dra_extender.config.settings import InvalidSettingsError, Settings
from dra_extender.service.wiring import serve, with_scheduler


async def test_leader_election_outside_a_pod_needs_a_namespace() -> None:
    settings = Settings(
        server=ServerSettings(host="127.0.0.1", port=0), leader_election=LeaderElectionSettings(enabled=True)
    )
    with pytest.raises(
        InvalidSettingsError, match=r"setting leader_election.namespace .*: expected the namespace of the Lease"
    ):
        await serve(settings)


def test_pods_are_taken_from_the_profiles_of_the_kube_scheduler_that_calls(tmp_path: Path) -> None:
    file = tmp_path / "kube-scheduler.yaml"
    file.write_text(json.dumps(render(SchedulerSetup(scheduler_name="mine"))))
    given = Settings(scheduling=SchedulingSettings(scheduler_config=file))
    assert with_scheduler(given).scheduling.scheduler_names == ("mine",)
    named = Settings(scheduling=SchedulingSettings(scheduler_config=file, scheduler_names=("other",)))
    assert with_scheduler(named).scheduling.scheduler_names == ("other",)
    assert with_scheduler(Settings()).scheduling.options().scheduler_names == ()
