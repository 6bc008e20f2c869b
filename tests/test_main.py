import pytest

from app.main import serve
from app.settings import BadSettings, LeaderElectionSettings, ServerSettings, Settings


async def test_leader_election_outside_a_pod_needs_a_namespace() -> None:
    settings = Settings(
        server=ServerSettings(host="127.0.0.1", port=0), leader_election=LeaderElectionSettings(enabled=True)
    )
    with pytest.raises(BadSettings, match=r"setting leader_election.namespace .*: expected the namespace of the Lease"):
        await serve(settings)
