"""Programs of the tests that are written in C, and other servers."""
import os
import re
import socket
import subprocess

from .gateway import BUILD
from .postgres import postgres
from .redis import redis
from .stores import ON_DISK, ON_SERVER, STORE, is_store, prefix, schema, store_directory
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
    """Where a store is: a file or a directory. The memory store's file is a descriptor of the master."""
    if ON_DISK:
        return store_directory(gateway.dir, name)
    pid = gateway.pid()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{fd}"
        if is_store(os.readlink(path), name + " "):
            return path
    raise AssertionError("the master has no store")


def store_bytes(gateway):
    """All that somebody reads who has got hold of the store."""
    if STORE == "postgres":
        return b"".join(cell for cell, _ in postgres().cells(schema(gateway.dir)))
    if ON_SERVER:
        return b"".join(name.encode() + cell for name, cell, _ in redis().cells(prefix(gateway.dir)))
    path = store_path(gateway)
    paths = [os.path.join(path, name) for name in os.listdir(path)] if os.path.isdir(path) else [path]
    data = b""
    for part in paths:
        with open(part, "rb") as file:
            data += file.read()
    return data


def verify(gateway):
    """Runs the checker over the store; returns the number of cells."""
    if STORE == "postgres":
        cells = postgres().cells(schema(gateway.dir))
        assert all(fine for _, fine in cells)
        return len(cells)
    if ON_SERVER:
        return redis_cells(prefix(gateway.dir))
    if ON_DISK:
        return records(store_path(gateway))
    run = subprocess.run([tool("verify_store"), store_path(gateway)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return int(run.stdout.split()[0])


def records(path):
    """LMDB's own tool reads every record, of the main database and of those with names; returns their number."""
    dumps = [subprocess.run(["mdb_dump", *option, path], capture_output=True, check=False) for option in ([], ["-a"])]
    assert dumps[0].returncode == 0, dumps[0].stderr
    # a line for each key and one for each value, with a blank before
    return sum(line.startswith(b" ") for dump in dumps for line in dump.stdout.splitlines()) // 2


def redis_cells(begin):
    """Each cell has its line and a time to live; returns their number."""
    cells = redis().cells(begin)
    for name, cell, left in cells:
        assert re.match(rb"idem/1 [0-9a-f]{32} (locked|stored|doubt ) [0-9a-f]{64} attempt=\d{10} lease=\d{15} "
                        rb"retain=\d{15}\n", cell), (name, cell[:200])
        assert left != -1, name
    return len(cells)
