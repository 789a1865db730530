"""A Redis master that Sentinels watch: the gateway asks them for it, and follows when another one takes over."""
import pytest

from harness.client import Http1, request
from harness.load import PatientLoad, code
from harness.redis import Watched, linked
from harness.wait import wait_until

pytestmark = pytest.mark.redis_only


@pytest.fixture
def watched():
    watched = Watched()
    yield watched
    watched.stop()


def test_when_the_master_is_killed_under_load_gateways_follow_and_no_acknowledged_key_executes_twice(guarded, tally, watched):
    line = watched.line(options="?wait_replicas=1,500")
    gateways = [guarded("idempotency_lease 20s; idempotency_wait 0;", http=line) for _ in range(2)]
    load = PatientLoad(gateways, clients=4)
    load.go_on()
    master = watched.master()
    master.kill()
    wait_until(lambda: watched.master() not in (None, master), 30, "another master")
    load.go_on()
    assert load.refused, "nobody noticed"
    load.end(tally)


def test_when_the_master_is_changed_under_load_no_answer_is_lost(guarded, tally, watched):
    """The old one is there, and takes writes until it is told that it is a replica. So all replicas must be waited for:
    one alone may still follow the old one, and acknowledge what the new one never hears of."""
    line = watched.line(options="?wait_replicas=2,500")
    gateways = [guarded("idempotency_lease 20s; idempotency_wait 0;", http=line) for _ in range(2)]
    load = PatientLoad(gateways, clients=4)
    load.go_on()
    master = watched.master()
    watched.sentinels[0].cli("SENTINEL", "FAILOVER", "main")
    wait_until(lambda: watched.master() not in (None, master), 30, "another master")
    # as the Sentinels do after ten seconds
    master.cli("REPLICAOF", master.host, str(watched.master().port))
    load.go_on()
    load.end(tally)


def test_a_duplicate_that_waits_is_answered_by_the_new_master(guarded, tally, key, watched):
    line = watched.line(options="?wait_replicas=1,500")
    one, other = (guarded("idempotency_lease 20s; idempotency_wait 30s;", http=line, workers=1) for _ in range(2))
    with Http1(one.port) as client:
        client.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        master = watched.master()
        watched.sentinels[0].cli("SENTINEL", "FAILOVER", "main")
        wait_until(lambda: watched.master() not in (None, master), 30, "another master")
        wait_until(lambda: code(request(other, "/b", key + "-b")) is None, 10, "the gateway to follow")
        with Http1(other.port) as waiter:
            waiter.send("/a?gate=g", key)
            tally.open("g")
            first, again = client.read(), waiter.read()
    assert first.status == 200 and again.replayed and again.same_as(first) and tally.count("/a") == 1


def test_without_the_replicas_that_are_wanted_keys_are_refused_and_not_executed(guarded, tally, key, watched):
    gateway = guarded("idempotency_wait 0;", http=watched.line(options="?wait_replicas=2,300"), workers=1)
    first = request(gateway, "/a", key)
    replica = watched.replicas()[0]
    replica.kill()
    answer = request(gateway, "/a", key + "-new")
    assert code(answer) == "store-unavailable" and tally.count("/a") == 1
    assert "wait_replicas wants 2: keys are refused" in gateway.log()
    # also what is there: who knows whether it stays
    assert code(request(gateway, "/a", key)) == "store-unavailable"
    replica.start()
    wait_until(lambda: linked(watched.master()) == 2, what="the replica to be there again")
    assert request(gateway, "/a", key).same_as(first)
    # the claim that was not acknowledged was taken back
    wait_until(lambda: request(gateway, "/a", key + "-new").status == 200, 5)
    assert tally.count("/a") == 2 and "enough replicas" in gateway.log()


def test_sentinels_that_are_gone_are_passed_over(guarded, tally, key, watched):
    watched.sentinels[0].kill()
    gateway = guarded(http=watched.line(), workers=1)
    first = request(gateway, "/a", key)
    assert first.status == 200
    # with the one that was asked gone as well nobody is needed, while the master is there
    watched.sentinels[1].kill()
    assert request(gateway, "/a", key).same_as(first) and tally.count("/a") == 1


def test_a_name_that_no_sentinel_knows_is_told(guarded, tally, key, watched):
    gateway = guarded(http=watched.line().replace("/main", "/other"), workers=1)
    assert code(request(gateway, "/a", key)) == "store-unavailable" and tally.count("/a") == 0
    wait_until(lambda: "a Sentinel does not know the master of this name: see the URI" in gateway.log(), 5)
