"""The fixtures of a story."""
import itertools
import os
import sys
import uuid

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from harness.gateway import Gateway  # noqa: E402
from harness.stores import DURABLE, NAMES, ON_DISK, ON_SERVER, STORE  # noqa: E402
from harness.tally import Tally  # noqa: E402


def pytest_configure(config):
    if STORE not in NAMES:
        raise pytest.UsageError(f'IDEM_STORE is "{STORE}"; it must be one of: {", ".join(NAMES)}')
    config.addinivalue_line("markers", "memory_only(reason): a story of the memory store, not told over another")
    config.addinivalue_line("markers", "durable_only: a story of stores whose records outlive nginx")
    config.addinivalue_line("markers", "disk_only: a story of stores in files of ours")
    config.addinivalue_line("markers", "sized_only: a story of stores that have a size and never exceed it")
    config.addinivalue_line("markers", "server_only: a story of stores on servers")
    config.addinivalue_line("markers", "redis_only: a story of Redis, its Sentinels and its cluster")


def pytest_collection_modifyitems(config, items):
    """Leaves out what is no story of this store: a skipped test would count as a failed one."""
    told = {"memory_only": not DURABLE, "durable_only": DURABLE, "disk_only": ON_DISK, "server_only": ON_SERVER,
            "redis_only": STORE == "redis", "sized_only": not ON_SERVER}
    away = [item for item in items if any(item.get_closest_marker(name) for name in told if not told[name])]
    items[:] = [item for item in items if item not in away]
    if away:
        config.hook.pytest_deselected(items=away)


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
