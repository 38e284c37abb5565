"""RabbitMQ 3.10 from Debian's package: a node of its own name, cookie and home, as a plain process.

Erlang starts its port mapper as a daemon that nobody ends. Ours runs in the foreground, on a port of its own, and ends
with the node.
"""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence

from tests.servers.process import free_port
from tests.servers.server import Server
from tests.servers.sources import debian_packages

_PROGRAM = "/usr/lib/rabbitmq/bin/rabbitmq-server"
_WITH_MAPPER = """
epmd & mapper=$!
{ program } & server=$!
trap 'kill -s TERM "$server"' TERM
wait "$server"; wait "$server"
kill "$mapper"
""".replace("{ program }", _PROGRAM)


class RabbitMQ(Server):
    name = "amqp"

    def obtain(self) -> None:
        debian_packages(["rabbitmq-server"], provides=_PROGRAM)

    def prepare(self) -> None:
        super().prepare()
        cookie = self.directory / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        (self.directory / "plugins").write_text("[].\n")
        (self.directory / "rabbitmq.conf").write_text(
            f"listeners.tcp.1 = 127.0.0.1:{self.port}\n"
            "log.console = true\nlog.file = false\n"
            "disk_free_limit.absolute = 1MB\nvm_memory_high_watermark.absolute = 512MB\n"
        )
        (self.directory / "environment").write_text("")
        self._mapper_port, self._node_port = free_port(), free_port()

    def command(self) -> Sequence[str]:
        directory = self.directory
        settings = {
            "HOME": directory,
            "ERL_EPMD_PORT": self._mapper_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_DIST_PORT": self._node_port,
            "RABBITMQ_CONF_ENV_FILE": directory / "environment",
            "RABBITMQ_CONFIG_FILE": directory / "rabbitmq.conf",
            "RABBITMQ_ENABLED_PLUGINS_FILE": directory / "plugins",
            "RABBITMQ_MNESIA_BASE": directory / "data",
            "RABBITMQ_LOG_BASE": directory / "data",
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_PID_FILE": directory / "pid",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 1:1 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}",
        }
        return ["env", *(f"{name}={value}" for name, value in settings.items()), "/bin/sh", "-c", _WITH_MAPPER]

    def ready(self) -> bool:
        # The port is open before the broker speaks.
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(b"AMQP\x00\x00\x09\x01")
                return len(connection.recv(1)) == 1
        except OSError:
            return False

    def url(self, place: str) -> str:
        """One virtual host for all: a place is a prefix of queue names, which the tests choose themselves."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"
