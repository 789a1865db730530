"""The fixtures of a story."""
import itertools
import os
import sys
import uuid

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness.gateway import Gateway  # noqa: E402
from harness.tally import Tally  # noqa: E402


@pytest.fixture
def tally():
    backend = Tally()
    yield backend
    backend.close()


@pytest.fixture
def key():
    return str(uuid.uuid4())


@pytest.fixture
def nginx(tmp_path):
    """Starts gateways; they are stopped, and their logs checked, at the end."""
    gateways = []
    numbers = itertools.count()

    def start(server, run=True, **parts):
        directory = tmp_path / f"nginx{next(numbers)}"
        directory.mkdir()
        gateway = Gateway(directory, server, **parts)
        if run:
            gateways.append(gateway.start())
        return gateway

    yield start
    for gateway in gateways:
        gateway.stop()


@pytest.fixture
def guarded(nginx, tally):
    """A gateway whose location / is guarded and passes to the tally; extra directives as one string."""

    def start(extra="", server="", **parts):
        return nginx(f"""
            location / {{
                idempotency keys;
                {extra}
                proxy_pass http://127.0.0.1:{tally.port};
            }}
            {server}""", **parts)

    return start
