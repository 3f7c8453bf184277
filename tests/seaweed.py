"""A real SeaweedFS server with the S3 API, for as long as a test needs it."""

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

KEY, SECRET = "testkey", "testsecret-of-the-server"
_IDENTITY = {
    "name": "tester",
    "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
    "actions": ["Admin", "Read", "Write", "List", "Tagging"],
}


def weed_binary() -> str | None:
    beside = str(Path(sys.executable).parent)
    return shutil.which("weed", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")


class Seaweed:
    """One server process, started by the constructor; `wait_until` it is ready."""

    def __init__(self, binary: str, folder: Path) -> None:
        ports = _free_ports(4)
        self._ports = ports
        self.endpoint = f"http://127.0.0.1:{ports[3]}"
        (folder / "s3.json").write_text(json.dumps({"identities": [_IDENTITY]}))
        (folder / "data").mkdir()
        names = ("-master.port", "-volume.port", "-filer.port", "-s3.port")
        addresses = [f"{name}={port}" for name, port in zip(names, ports, strict=True)]
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [binary, "server", f"-dir={folder / 'data'}", "-ip=127.0.0.1",
                 "-ip.bind=127.0.0.1", "-filer", "-s3", f"-s3.config={folder / 's3.json'}",
                 "-s3.port.iceberg=0", "-s3.port.lance=0", "-volume.max=200",
                 "-master.volumeSizeLimitMB=64", *addresses],
                stdout=log, stderr=log,
            )  # fmt: skip
        self._log = folder / "log"

    def wait_until(self, ready) -> None:
        """Try until a real request goes through."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            if ready():
                return
            time.sleep(0.2)
        raise RuntimeError(f"SeaweedFS did not start:\n{self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """End the server at once and wait until it has left its ports."""
        self._process.kill()
        self._process.wait(20)
        for port in (*self._ports, *(port + 10_000 for port in self._ports)):
            for left in Path("/tmp").glob(f"seaweedfs-*-{port}.sock"):
                left.unlink()


def _free_ports(count: int) -> list[int]:
    """Find ports whose twin 10000 above, used for gRPC, is free too."""
    found: list[int] = []
    while len(found) < count:
        port = random.randrange(15_000, 25_000)
        if port not in found and _is_free(port) and _is_free(port + 10_000):
            found.append(port)
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
