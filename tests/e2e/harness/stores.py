"""The store that the stories are told over. IDEM_STORE names it: memory, if nothing is said."""
import hashlib
import os
import re

from .postgres import postgres
from .redis import Redis, redis

NAMES = ("memory", "lmdb", "redis", "postgres")
STORE = os.environ.get("IDEM_STORE") or "memory"

# Records outlive nginx.
DURABLE = STORE != "memory"
# They are in files of ours; they are on a server.
ON_DISK = STORE == "lmdb"
ON_SERVER = STORE in ("redis", "postgres")

# Stand for the gateway's own directory, until Gateway.write() puts it in: new for each test, the same after a restart.
# A server has no directories, and takes what tells them apart.
DIR = "{dir}"
MARK = "{mark}"

# A store that some hundred responses of a few kilobytes fill; to be passed as it is.
SMALL = "1m" if STORE == "memory" else "4m"


def store_line(name="keys", size="8m", exact=False, directory=DIR, sync=""):
    """The directive that declares the store.

    The size is what the memory store needs; others get what they need for the same, or exactly it. The directory and
    sync are for stores on a disk.
    """
    if STORE == "memory":
        return f"idempotency_store {name} memory:?size={size};"
    if STORE == "redis":
        server = small_server(size) if exact else redis()
        return f"idempotency_store {name} unix:{server.socket}?prefix={prefix(directory, name)};"
    if STORE == "postgres":
        return f"idempotency_store {name} {postgres().uri(schema(directory, name, size if exact else None))};"
    options = f"size={size if exact else roomy(size)}" + (f"&sync={sync}" if sync else "")
    return f"idempotency_store {name} lmdb:{store_directory(directory, name)}?{options};"


def own_server(*options, keeps=True, **more):
    """A server that one story alone has, and may do with what it likes; it forgets nothing unless keeps is false."""
    return Redis(*(["--appendonly", "yes", "--appendfsync", "always"] if keeps else []), *options, **more)


def line_to(server, name="keys", port=None, timeout="500ms"):
    """The directive that declares a store on that server; port: of what is in between."""
    return f"idempotency_store {name} redis://{server.host}:{port or server.port} timeout={timeout};"


def small_server(size):
    """A server of its own for each, because it is to be filled."""
    server = Redis("--maxmemory-policy", "noeviction")
    own = int(server.info("used_memory"))
    server.cli("CONFIG", "SET", "maxmemory", str(own + megabytes(size)))
    return server


def megabytes(size):
    assert size.endswith("m")
    return int(size[:-1]) << 20


def roomy(size):
    """Pages that are half full, and those that a write copies, take more. What is not used takes nothing on the disk."""
    return f"{max(4 * megabytes(size) >> 20, 32)}m"


def placed(text, directory):
    """Puts a gateway's directory in, and makes what it needs on a server."""
    text = text.replace(DIR, directory).replace(MARK, mark(directory))
    if STORE == "postgres":
        for found, size in re.findall(r"schema=(idem_[a-z0-9_]*?(?:_full(\d+))?)(?![a-z0-9_])", text):
            postgres().need(found, int(size) << 20 if size else None)
    return text


def mark(directory):
    return MARK if directory == DIR else hashlib.sha256(directory.encode()).hexdigest()[:12]


def prefix(directory, name="keys"):
    return f"idem:{mark(directory)}:{name}:"


def schema(directory, name="keys", full=None):
    """That of a store; full: the size with which it is."""
    return (f"idem_{mark(directory)}_" + re.sub("[^a-z0-9_]", "_", name.lower())
            + (f"_full{megabytes(full) >> 20}" if full else ""))


def store_directory(directory, name="keys"):
    return os.path.join(directory, name + ".idem")


def is_store(link, name=""):
    """Whether the link of a descriptor in /proc leads into a store (of that name)."""
    if STORE == "memory":
        return f"memfd:idempotency:{name}" in link
    if ON_SERVER:
        return False  # the master has no connection
    return f"{name}.idem/" in link


# How many descriptors a process holds for one open store, at the most: LMDB has its data open twice, and a lock file.
DESCRIPTORS = 1 if STORE == "memory" else 3
