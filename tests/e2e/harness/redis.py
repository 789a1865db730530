"""A real Redis server in a directory of its own, which ends with the tests."""
import atexit
import functools
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile

import redis as client

from .wait import wait_until


def found_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Redis:
    """Answers on a Unix socket and on a TCP port; keeps nothing on the disk unless it is told to."""

    def __init__(self, *options, host="127.0.0.1", run=(), start=True):
        """run: a command that runs the server's command."""
        self.host = host
        self.run = run
        self.dir = tempfile.mkdtemp(prefix="idem-test-redis-")
        self.socket = os.path.join(self.dir, "socket")
        self.port = found_port()
        self.options = options
        self.process = None
        atexit.register(self.stop)
        if start:
            self.start()

    def start(self):
        # it ends when we do, also when we are killed
        self.process = subprocess.Popen(
            [*self.run, "setpriv", "--pdeathsig", "KILL", "redis-server", *self.arguments()],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.cli("PING", check=False) == "PONG", what="Redis to answer")
        return self

    def arguments(self):
        return ["--dir", self.dir, "--port", str(self.port), "--bind", self.host, "--unixsocket", self.socket,
                "--save", "", *self.options]

    def cli(self, *words, check=True):
        """One command of redis-cli; its answer as text."""
        return subprocess.run(["redis-cli", "-s", self.socket, *words], capture_output=True, text=True,
                              check=check, timeout=30).stdout.rstrip("\n")

    def info(self, name):
        """One line of INFO."""
        return re.search(rf"^{name}:(.*?)\r?$", self.cli("INFO"), re.M).group(1)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self):
        self.process.send_signal(signal.SIGCONT)

    def refuse_connections(self):
        """Breaks all, and takes no new ones: ours is the only one that is allowed."""
        self.only = client.Redis(unix_socket_path=self.socket, single_connection_client=True)
        self.only.config_set("maxclients", 1)
        for kind in ("normal", "pubsub"):
            self.only.execute_command("CLIENT", "KILL", "TYPE", kind)

    def take_connections(self):
        self.only.config_set("maxclients", 1000)
        self.only.connection_pool.disconnect()

    def fill(self):
        """As if its memory were full."""
        self.cli("CONFIG", "SET", "maxmemory", "1mb")

    def make_room(self):
        self.cli("CONFIG", "SET", "maxmemory", "0")

    def connections(self):
        return int(self.info("connected_clients"))

    def stop(self):
        if self.process is not None:
            self.kill()
            self.process = None
            shutil.rmtree(self.dir, ignore_errors=True)

    def cells(self, prefix):
        """The cells whose keys begin so: name, bytes, and milliseconds to live, or -1 without end."""
        with client.Redis(unix_socket_path=self.socket, socket_timeout=30) as server:
            names = list(server.scan_iter(prefix + "*", 1000))
            asked = server.pipeline(transaction=False)
            for name in names:
                asked.get(name).pttl(name)
            answers = asked.execute()
        cells = zip((name.decode() for name in names), answers[::2], answers[1::2])
        # what has ended since it was listed is none
        return [cell for cell in cells if cell[1] is not None]


class Sentinel(Redis):
    """Watches a master, together with others."""

    def __init__(self, master, number, quorum):
        self.id = f"{number:040x}"
        self.watched = [f"sentinel myid {self.id}",
                        f"sentinel monitor main {master.host} {master.port} {quorum}",
                        "sentinel down-after-milliseconds main 500",
                        "sentinel failover-timeout main 3000"]
        super().__init__(start=False)

    def knows(self, replicas, others):
        """What it would find out by itself in some seconds."""
        self.watched += [f"sentinel known-replica main {replica.host} {replica.port}" for replica in replicas]
        self.watched += [f"sentinel known-sentinel main {other.host} {other.port} {other.id}"
                         for other in others if other is not self]

    def arguments(self):
        path = os.path.join(self.dir, "sentinel.conf")
        if not os.path.exists(path):  # it writes there what it learns
            with open(path, "w", encoding="ascii") as conf:
                conf.write("\n".join(self.watched) + "\n")
        return [path, "--sentinel", *super().arguments()]


class Watched:
    """A master and its replicas, of which Sentinels make another one the master when it is gone."""

    def __init__(self, replicas=2, sentinels=3):
        master = Redis(*QUICK)
        self.servers = [master, *(Redis(*QUICK, "--replicaof", master.host, str(master.port)) for _ in range(replicas))]
        wait_until(lambda: linked(master) == replicas, what="the replicas to be there")
        self.sentinels = [Sentinel(master, 1 + n, sentinels // 2 + 1) for n in range(sentinels)]
        for sentinel in self.sentinels:
            sentinel.knows(self.servers[1:], self.sentinels)
            sentinel.start()
        for sentinel in self.sentinels:
            wait_until(lambda: re.search(rf"slaves={replicas},sentinels={sentinels}", sentinel.cli("INFO", "sentinel")),
                       what="the Sentinels to know each other")

    def line(self, name="keys", options="", timeout="1s"):
        addresses = ",".join(f"{sentinel.host}:{sentinel.port}" for sentinel in self.sentinels)
        return f"idempotency_store {name} redis+sentinel://{addresses}/main{options} timeout={timeout};"

    def master(self):
        """The one that the Sentinels name, or nothing while they do not agree."""
        named = {s.cli("SENTINEL", "GET-MASTER-ADDR-BY-NAME", "main").split("\n")[-1] for s in self.sentinels if s.process}
        return next((server for server in self.servers if named == {str(server.port)}), None)

    def replicas(self):
        return [server for server in self.servers if server.process and server is not self.master()]

    def stop(self):
        for server in self.sentinels + self.servers:
            server.stop()


class Cluster:
    """Three masters, each with a replica."""

    def __init__(self):
        self.servers = [Redis(*QUICK, "--cluster-enabled", "yes", "--cluster-node-timeout", "1000",
                              "--cluster-port", str(found_port())) for _ in range(6)]
        self.manage("create", *(self.address(server) for server in self.servers), "--cluster-replicas", "1")
        wait_until(lambda: all("cluster_state:ok" in s.cli("CLUSTER", "INFO") for s in self.servers), what="the cluster")
        wait_until(lambda: all(linked(master) == 1 for master in self.masters()), what="the replicas to be there")

    @staticmethod
    def address(server):
        return f"{server.host}:{server.port}"

    @staticmethod
    def manage(*words):
        run = subprocess.run(["redis-cli", "--cluster", *words, "--cluster-yes"], capture_output=True, text=True, timeout=60,
                             check=False)
        assert run.returncode == 0, run.stdout[-2000:]

    def line(self, name="keys", options="", timeout="1s", seeds=1):
        addresses = ",".join(self.address(server) for server in self.servers[:seeds])
        return f"idempotency_store {name} redis+cluster://{addresses}{options} timeout={timeout};"

    def masters(self):
        return [server for server in self.servers if server.process.poll() is None and server.cli("ROLE").startswith("master")]

    def holder(self, key):
        """The master that has it."""
        return next(master for master in self.masters() if master.cli("EXISTS", key) == "1")

    def stop(self):
        for server in self.servers:
            server.stop()


# A full copy is made at once, not after five seconds, and an empty one needs no disk.
QUICK = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")


def linked(master):
    return len(re.findall(r"slave\d+:.*state=online", master.cli("INFO", "replication")))


@functools.cache
def redis():
    """The one that all stories share."""
    return Redis()
