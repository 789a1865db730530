"""A real PostgreSQL server in a directory of its own, which ends with the tests."""
import atexit
import functools
import glob
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile

from .wait import wait_until

SCHEMA = os.path.join(os.path.dirname(__file__), "..", "..", "..", "src", "stores", "postgres", "schema.sql")

# Debian has a directory for each version, and none of them in PATH.
PROGRAMS = (sorted(glob.glob("/usr/lib/postgresql/*/bin/")) or [""])[-1]

# Refuses new rows as a full disk does, when those that are there have so many bytes.
FULL = """
CREATE FUNCTION {schema}.full() RETURNS trigger LANGUAGE plpgsql SET jit = off AS $$
BEGIN
    IF (SELECT coalesce(sum(length(payload) + 300), 0) > {size} FROM {schema}.cells) THEN
        RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER is_full BEFORE INSERT ON {schema}.cells FOR EACH ROW EXECUTE FUNCTION {schema}.full();
"""


def place():
    """In memory, if there is room: each commit waits for the disk, and nothing here is to outlive the machine."""
    try:
        room = os.statvfs("/dev/shm")
        return "/dev/shm" if room.f_bavail * room.f_frsize >= 1 << 30 else None
    except OSError:
        return None


def as_user():
    """PostgreSQL takes no orders from root."""
    if os.geteuid() != 0:
        return {}
    user = pwd.getpwnam("postgres")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


class Postgres:
    """Answers on a Unix socket and on a TCP port; nobody needs a password."""

    def __init__(self, *settings):
        self.dir = tempfile.mkdtemp(prefix="idem-test-postgres-", dir=place())
        os.chmod(self.dir, 0o755)
        user = as_user()
        if user:
            os.chown(self.dir, user["user"], user["group"])
        with socket.create_server(("127.0.0.1", 0)) as found:
            self.port = found.getsockname()[1]
        self.settings = [word for setting in settings for word in ("-c", setting)]
        self.process = None
        self.schemas = set()
        atexit.register(self.stop)
        subprocess.run([PROGRAMS + "initdb", "-D", self.dir + "/data", "-A", "trust", "-U", "owner", "--no-sync",
                        "--encoding", "UTF8", "--locale", "C"], check=True, stdout=subprocess.DEVNULL, cwd="/", **user)
        self.start()
        self.sql("CREATE ROLE gateway LOGIN")

    def start(self):
        # it ends when we do, also when we are killed, and takes its children with it
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "INT", PROGRAMS + "postgres", "-D", self.dir + "/data", "-p", str(self.port),
             "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=" + self.dir,
             "-c", "max_connections=200", "-c", "autovacuum_naptime=1s", *self.settings],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **as_user())
        wait_until(lambda: self.sql("SELECT 1", check=False) == "1", what="PostgreSQL to answer")
        return self

    def psql(self, *words, check=True, **more):
        return subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.dir, "-p", str(self.port),
                               "-U", "owner", *words, "postgres"], capture_output=True, text=True, check=check,
                              timeout=60, **more).stdout.rstrip("\n")

    def sql(self, statement, check=True):
        """Statements; what they answer as text."""
        return self.psql("-f", "-", check=check, input=statement)

    def need(self, schema, size=None):
        """Makes a schema if it is not there; size: it is full with so many bytes."""
        if schema in self.schemas:
            return
        self.psql("-v", "schema=" + schema, "-v", "gateway=gateway", "-f", SCHEMA)
        if size is not None:
            self.sql(FULL.format(schema=schema, size=size))
        self.schemas.add(schema)

    def uri(self, schema):
        return f"postgres://gateway@/postgres?host={self.dir}&port={self.port}&schema={schema}"

    def cells(self, schema):
        """All that is in each cell, as bytes, and the check of it."""
        rows = self.sql(f"""SELECT encode(scope || key || tag || fingerprint || payload, 'hex'),
                expires = written + retain_ms * interval '1 millisecond' AND created <= written AND attempt > 0
                    AND (state = 'stored') = (payload <> '')
            FROM {schema}.cells WHERE expires > now()""")
        return [(bytes.fromhex(row.split("|")[0]), row.endswith("|t")) for row in rows.splitlines()]

    def kill(self):
        """All at once, as if the machine had failed."""
        self.process.send_signal(signal.SIGQUIT)
        self.process.wait()

    def freeze(self):
        self._signal_all(signal.SIGSTOP)

    def thaw(self):
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, number):
        pid = self.process.pid
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as children:
            for child in children.read().split():
                try:
                    os.kill(int(child), number)
                except ProcessLookupError:
                    pass
        self.process.send_signal(number)

    def stop(self):
        if self.process is not None:
            self.kill()
            self.process = None
        shutil.rmtree(self.dir, ignore_errors=True)


@functools.cache
def postgres():
    """The one that all stories share."""
    return Postgres()
