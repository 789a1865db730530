"""What a Redis server is told by the URI, and what it is found out to be."""
import os
import subprocess
import time

import pytest

from harness.client import Http1, request
from harness.gateway import settle
from harness.load import code
from harness.redis import Redis, linked
from harness.wait import wait_until

pytestmark = pytest.mark.redis_only


@pytest.fixture
def redis():
    """Starts servers with options."""
    servers = []

    def start(*options):
        servers.append(Redis(*options))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


@pytest.fixture
def served(guarded):
    def start(uri, extra=""):
        return guarded(extra, http=f'idempotency_store keys "{uri}";', workers=1)

    return start


def uri_of(server, who="", more="", scheme="redis"):
    return f"{scheme}://{who}{server.host}:{server.port}{more}"


def works(gateway, tally, key):
    """All that a gateway asks of a server: to execute, to replay, to release, to wait. Returns how long a duplicate waited
    for an answer that was there."""
    first = request(gateway, "/a", key)
    assert first.status == 200 and request(gateway, "/a", key).same_as(first)
    assert request(gateway, "/a?status=503", key + "-b").body != request(gateway, "/a?status=503", key + "-b").body
    with Http1(gateway.port) as one, Http1(gateway.port) as other:
        one.send("/c?gate=" + key, key + "-c")
        wait_until(lambda: tally.count("/c"))
        other.send("/c?gate=" + key, key + "-c")
        settle(0.2)
        tally.open(key)
        done = one.read()
        began = time.monotonic()
        assert other.read().same_as(done)
        woken = time.monotonic() - began
    assert tally.count("/a") == 3 and tally.count("/c") == 1
    return woken


def refuses(gateway, tally, key, why):
    """Nothing is executed, and the log says why."""
    assert code(request(gateway, "/a", key)) == "store-unavailable" and tally.count() == 0
    wait_until(lambda: why in gateway.log(), 5, f"{why} in the log")


# What may be wrong with it


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_server_that_may_drop_keys_is_used_and_warned_of(served, redis, tally, key, policy):
    gateway = served(uri_of(redis("--maxmemory-policy", policy)))
    works(gateway, tally, key)
    assert f"its maxmemory-policy {policy} drops keys that are promised" in gateway.log()
    assert gateway.log().count("set it to noeviction") == 1


def test_a_server_that_keeps_its_keys_is_not_warned_of(served, redis, tally, key):
    gateway = served(uri_of(redis("--maxmemory-policy", "noeviction")))
    works(gateway, tally, key)
    assert "maxmemory-policy" not in gateway.log() and "[warn]" not in gateway.log()


def test_a_replica_is_not_written_to_and_is_used_when_it_is_a_master(served, redis, tally, key):
    master = redis("--repl-diskless-sync-delay", "0")
    replica = redis("--replicaof", master.host, str(master.port))
    wait_until(lambda: linked(master) == 1, what="the replica")
    gateway = served(uri_of(replica))
    refuses(gateway, tally, key, "replica")
    replica.cli("REPLICAOF", "NO", "ONE")
    wait_until(lambda: request(gateway, "/a", key + "-now").status == 200, 5)
    assert tally.count("/a") == 1


def test_a_password_is_wanted_and_must_be_right_and_is_never_told(served, redis, tally, key):
    server = redis()
    server.cli("CONFIG", "SET", "requirepass", "s3cret")
    for n, (who, why) in enumerate([("", "it wants a password: give USER:PASSWORD@ in the URI"),
                                    (":wr0ng@", "it does not take the password"),
                                    ("nobody:s3cret@", "it does not take the password")]):
        gateway = served(uri_of(server, who))
        refuses(gateway, tally, f"{key}-{n}", why)
        assert "wr0ng" not in gateway.log() and "s3cret" not in gateway.log()
    works(served(uri_of(server, ":s3cret@")), tally, key)


def test_a_database_that_is_not_there_is_told(served, redis, tally, key):
    refuses(served(uri_of(redis("--databases", "4"), more="/4")), tally, key, "DB index is out of range")


# What the URI says


def test_a_database_has_its_own_keys(served, redis, tally, key):
    server = redis()
    for n, more in enumerate(["", "/3", "?db=5"]):
        gateway = served(uri_of(server, more=more))
        assert not request(gateway, "/a", key).replayed and request(gateway, "/a", key).replayed
        assert tally.count("/a") == n + 1
    keyspace = server.cli("INFO", "keyspace")
    assert all(f"db{number}:keys=1," in keyspace for number in (0, 3, 5))


def test_a_prefix_has_its_own_keys(served, redis, tally, key):
    server = redis()
    for n, more in enumerate(["", "?prefix=shop:", "?prefix={shop}"]):
        gateway = served(uri_of(server, more=more))
        assert not request(gateway, "/a", key).replayed and request(gateway, "/a", key).replayed
        assert tally.count("/a") == n + 1
    assert [len(server.cells(begin)) for begin in ("idem:", "shop:", "{shop}")] == [1, 1, 1]


def test_what_somebody_else_has_put_where_a_cell_belongs_is_left_alone(served, redis, tally, key):
    server = redis()
    gateway = served(uri_of(server))
    request(gateway, "/a", key)
    ((name, _, _),) = server.cells("idem:")
    for command in (["SET", name, "mine"], ["RPUSH", name, "mine"]):
        server.cli("DEL", name)
        server.cli(*command)
        assert code(request(gateway, "/a", key)) == "store-unavailable" and tally.count("/a") == 1
        assert server.cli("EXISTS", name) == "1"
    assert "give the store a prefix of its own" in gateway.log()


# The least rights
#
# A user that Idem is given needs these, and no other: its keys and its channels, which have the same names; the
# script; what the script does; and what a connection says of itself. SELECT is for a database other than 0, WAIT for
# wait_replicas, CLUSTER SLOTS and ASKING are for a cluster. Without INFO it works, and does not warn of a policy.

KEYS = ["~idem:*", "&idem:*"]
SCRIPT = ["+eval", "+evalsha", "+time", "+getrange", "+pttl", "+set", "+del"]
HINTS = ["+publish", "+subscribe", "+unsubscribe", "+ping"]
ABOUT = ["+info"]
ELSEWHERE = ["+select", "+wait"]


def allow(server, rights):
    server.cli("ACL", "SETUSER", "idem", "reset", "on", ">s3cret", *rights)


def test_a_user_with_the_least_rights_is_enough(served, redis, tally, key):
    server = redis()
    allow(server, KEYS + SCRIPT + HINTS + ABOUT + ELSEWHERE)
    gateway = served(uri_of(server, "idem:s3cret@", "/1"))
    assert works(gateway, tally, key) < 0.4, "a duplicate was not woken"
    assert "[warn]" not in gateway.log() and "[error]" not in gateway.log()


@pytest.mark.parametrize("lacking", [["~idem:*"], SCRIPT[:2], *([right] for right in SCRIPT[2:] if right != "+pttl")],
                         ids=lambda lacking: lacking[0])
def test_without_a_right_that_is_needed_nothing_is_executed_twice_and_the_log_says_which(served, redis, tally, key, lacking):
    server = redis()
    allow(server, [right for right in KEYS + SCRIPT + HINTS + ABOUT if right not in lacking])
    gateway = served(uri_of(server, "idem:s3cret@"))
    for _ in range(2):
        request(gateway, "/a?status=503", key)
    assert tally.count("/a") <= 1
    wait_until(lambda: "grant the user ~idem:* &idem:* +eval +evalsha +exists +getrange +set +del " in gateway.log(), 5)


@pytest.mark.parametrize("lacking", ["&idem:*", "+subscribe", "+publish"])
def test_without_the_right_to_channels_duplicates_ask_by_themselves_and_the_log_says_so(served, redis, tally, key, lacking):
    server = redis()
    allow(server, [right for right in KEYS + SCRIPT + HINTS + ABOUT if right != lacking])
    gateway = served(uri_of(server, "idem:s3cret@"), "idempotency_wait 10s;")
    works(gateway, tally, key)
    assert "duplicates that wait ask once a second and are not woken" in gateway.log()


def test_without_the_right_to_ask_it_of_itself_a_server_is_used(served, redis, tally, key):
    server = redis("--maxmemory-policy", "allkeys-lru")
    allow(server, KEYS + SCRIPT + HINTS)
    gateway = served(uri_of(server, "idem:s3cret@"))
    works(gateway, tally, key)
    assert "grant the user +info" in gateway.log()


# TLS


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    """One that is its own authority, for 127.0.0.1; and one of somebody else."""
    directory = tmp_path_factory.mktemp("certificates")
    os.chmod(directory, 0o755)
    for name in ("ours", "other"):
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={name}",
                        "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", directory / f"{name}.key", "-out",
                        directory / f"{name}.crt"], check=True, capture_output=True)
        os.chmod(directory / f"{name}.key", 0o644)
    return directory


@pytest.fixture
def secured(redis, certificates):
    """A server that speaks TLS alone."""

    def start(clients="no"):
        port = Redis(start=False).port
        server = redis("--port", "0", "--tls-port", str(port), "--tls-cert-file", str(certificates / "ours.crt"),
                       "--tls-key-file", str(certificates / "ours.key"), "--tls-ca-cert-file",
                       str(certificates / "ours.crt"), "--tls-auth-clients", clients)
        server.port = port
        return server

    return start


def test_over_tls_all_is_as_it_was(served, secured, tally, key, certificates):
    gateway = served(uri_of(secured(), more=f"?ca={certificates}/ours.crt", scheme="rediss"))
    works(gateway, tally, key)
    body = request(gateway, "/b?len=300000", key + "-large")
    assert request(gateway, "/b?len=300000", key + "-large").same_as(body)


def test_a_server_that_wants_to_know_us_is_shown_our_certificate(served, secured, tally, key, certificates):
    server, ca = secured("yes"), f"?ca={certificates}/ours.crt"
    assert code(request(served(uri_of(server, more=ca, scheme="rediss")), "/a", key)) == "store-unavailable"
    ours = f"{ca}&cert={certificates}/ours.crt&key={certificates}/ours.key"
    works(served(uri_of(server, more=ours, scheme="rediss")), tally, key)


def test_a_server_that_we_do_not_trust_is_told_nothing(served, secured, tally, key, certificates):
    for n, more in enumerate(["", f"?ca={certificates}/other.crt"]):
        gateway = served(uri_of(secured(), ":s3cret@", more, scheme="rediss"))
        refuses(gateway, tally, f"{key}-{n}", "its certificate is not to be trusted")


def test_a_certificate_that_cannot_be_read_is_refused_when_nginx_is_tested(guarded, redis):
    line = f"idempotency_store keys {uri_of(redis(), more='?ca=/no/where.crt', scheme='rediss')};"
    exit_code, said = guarded(http=line, run=False).test()
    assert exit_code != 0 and "/no/where.crt" in said


def test_without_tls_a_server_that_wants_it_is_not_used(served, secured, tally, key):
    assert code(request(served(uri_of(secured())), "/a", key)) == "store-unavailable" and tally.count() == 0
