"""Programs of the tests that are written in C, and other servers."""
import os
import socket
import subprocess

from .gateway import BUILD
from .wait import wait_until


def tool(name):
    return os.path.join(BUILD, "tests", "e2e", "tools", name)


class Server:
    """A program that listens on a port; ended by its own process id."""

    def __init__(self, command, port, **more):
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **more)
        self.port = port
        wait_until(self._listens, what=" ".join(command))

    def _listens(self):
        assert self.process.poll() is None, "the server ended"
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
            return True
        except OSError:
            return False

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def store_path(gateway, name="keys"):
    """The path of a store's memory, as the master sees it."""
    pid = gateway.pid()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        if f"memfd:idempotency:{name} " in os.readlink(path):
            return path
    raise AssertionError("the master has no store")


def verify(gateway):
    """Runs the checker over the store; returns the number of cells."""
    run = subprocess.run([tool("verify_store"), store_path(gateway)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return int(run.stdout.split()[0])
