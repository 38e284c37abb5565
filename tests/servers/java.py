"""Java 17, which two of the servers run on."""

from __future__ import annotations

from tests.servers.sources import debian_packages

JAVA = "/usr/lib/jvm/java-17-openjdk-amd64/bin/java"


def obtain_java() -> None:
    debian_packages(["openjdk-17-jre-headless"], provides=JAVA)
