"""The store that the stories are told over. IDEM_STORE names it: memory, if nothing is said, or lmdb."""
import os

NAMES = ("memory", "lmdb")
STORE = os.environ.get("IDEM_STORE") or "memory"

# Records outlive nginx.
DURABLE = STORE != "memory"

# Stands for the gateway's own directory, until Gateway.write() puts it in: new for each test, the same after a restart.
DIR = "{dir}"

# A store that some hundred responses of a few kilobytes fill; to be passed as it is.
SMALL = "1m" if STORE == "memory" else "4m"


def store_line(name="keys", size="8m", exact=False, directory=DIR, sync=""):
    """The directive that declares the store.

    The size is what the memory store needs; others get what they need for the same, or exactly it. The directory and
    sync are for stores on a disk.
    """
    if STORE == "memory":
        return f"idempotency_store {name} memory:?size={size};"
    options = f"size={size if exact else roomy(size)}" + (f"&sync={sync}" if sync else "")
    return f"idempotency_store {name} lmdb:{store_directory(directory, name)}?{options};"


def roomy(size):
    """Pages that are half full, and those that a write copies, take more. What is not used takes nothing on the disk."""
    assert size.endswith("m")
    return f"{max(4 * int(size[:-1]), 32)}m"


def store_directory(directory, name="keys"):
    return os.path.join(directory, name + ".idem")


def is_store(link, name=""):
    """Whether the link of a descriptor in /proc leads into a store (of that name)."""
    if STORE == "memory":
        return f"memfd:idempotency:{name}" in link
    return f"{name}.idem/" in link


# How many descriptors a process holds for one open store, at the most: LMDB has its data open twice, and a lock file.
DESCRIPTORS = 1 if STORE == "memory" else 3
