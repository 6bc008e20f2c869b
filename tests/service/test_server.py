import socket

import pytest
from dra_extender.config.service_settings import ServerSettings
from dra_extender.service.server import ListenError, listen


def test_a_taken_port_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use"),
            listen(ServerSettings(host="127.0.0.1", port=port)),
        ):
            pass


def test_an_unknown_address_is_said() -> None:
    with (
        pytest.raises(ListenError, match=r"cannot listen on no\.such\.host\.invalid, port 0: "),
        listen(ServerSettings(host="no.such.host.invalid", port=0)),
    ):
        pass
