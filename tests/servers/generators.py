"""Programs that make clients from an OpenAPI document: not servers, but obtained like them, into the user's cache."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.servers.java import JAVA, obtain_java
from tests.servers.sources import cached, debian_packages, run

PYTHON_CLIENT = "openapi-python-client==0.29.1"
TYPESCRIPT = ("openapi-typescript@7.13.0", "typescript@5.9.3")
GENERATOR = "7.17.0"
GENERATED_NEEDS = ("lazy-imports==1.0.1", "pydantic==2.12.5", "python-dateutil==2.9.0.post0", "urllib3==2.6.3")
"""What the client of openapi-generator imports."""
SECONDS = 300
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>mainspring.tests</groupId>
  <artifactId>generator</artifactId>
  <version>1</version>
</project>
"""


def _python() -> Path:
    """The interpreter of an environment of their own: what they need is none of our dependencies."""

    def build(directory: Path) -> None:
        run([sys.executable, "-m", "venv", str(directory)])
        pip = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run([*pip, PYTHON_CLIENT, *GENERATED_NEEDS])

    # Its scripts name the directory in which it was made, so modules are run instead.
    return cached("openapi-clients-1", build) / "bin" / "python"


def _call(*command: str, cwd: Path) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def openapi_python_client(document: Path, directory: Path) -> Callable[[str], None]:
    """Makes the package `client`; returns what runs a program that imports it."""
    python = _python()
    _call(
        *(str(python), "-m", "openapi_python_client", "generate", "--path", str(document), "--meta", "none"),
        *("--output-path", "client", "--fail-on-warning"),
        *("--config", str(_without_formatting(directory))),
        cwd=directory,
    )
    return lambda program: _call(str(python), "-W", "error", "-c", program, cwd=directory)


def _without_formatting(directory: Path) -> Path:
    config = directory / "config.yml"
    config.write_text("post_hooks: []\n")
    return config


def openapi_generator(document: Path, directory: Path) -> Callable[[str], None]:
    """Makes the package `openapi_client`; returns what runs a program that imports it."""
    python = _python()
    obtain_java()

    def build(home: Path) -> None:
        debian_packages(["maven"], provides="mvn")
        (home / "pom.xml").write_text(_POM)
        artifact = f"org.openapitools:openapi-generator-cli:{GENERATOR}"
        run(["mvn", "-q", "-B", "-ntp", _COPY, f"-Dartifact={artifact}", "-DoutputDirectory=lib"], cwd=home)

    [jar] = (cached(f"openapi-generator-{GENERATOR}", build) / "lib").glob("*.jar")
    java = [JAVA, "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-jar", str(jar)]
    _call(*java, "generate", "-g", "python", "-i", str(document), "-o", ".", cwd=directory)
    return lambda program: _call(str(python), "-c", program, cwd=directory)


def openapi_typescript(document: Path, directory: Path) -> Callable[[str], None]:
    """Makes `api.d.ts`; returns what checks the types of a module that imports it."""

    def build(home: Path) -> None:
        debian_packages(["npm"], provides="npm")
        (home / "package.json").write_text("{}")
        run(["npm", "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", *TYPESCRIPT], cwd=home)

    tools = cached("openapi-typescript-7.13.0", build) / "node_modules" / ".bin"
    _call(
        str(tools / "openapi-typescript"),
        str(document),
        "--default-non-nullable=false",
        "-o",
        "api.d.ts",
        cwd=directory,
    )

    def check(module: str) -> None:
        (directory / "module.ts").write_text(module)
        _call(str(tools / "tsc"), "--noEmit", "--strict", "module.ts", cwd=directory)

    return check
