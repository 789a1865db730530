"""A Redis cluster: each key is where its slot is, also while slots move and masters change."""
import re
import threading

import pytest

from harness.client import Http1, request
from harness.gateway import settle
from harness.load import PatientLoad, code
from harness.redis import Cluster
from harness.wait import wait_until

pytestmark = pytest.mark.redis_only


@pytest.fixture(scope="module")
def shared():
    cluster = Cluster()
    yield cluster
    cluster.stop()


@pytest.fixture
def cluster(shared):
    """The one of all stories here: each leaves it whole."""
    for master in shared.masters():
        master.cli("FLUSHALL")
    return shared


def times(server, command):
    """How often the server was given that command."""
    found = re.search(rf"cmdstat_{command}:calls=(\d+)", server.cli("INFO", "commandstats"))
    return int(found.group(1)) if found else 0


def test_keys_are_on_all_masters_and_are_found_from_any_of_them(guarded, tally, key, cluster):
    one = guarded(http=cluster.line(), workers=1)
    other = guarded(http=cluster.line(seeds=6), workers=1)
    firsts = [request(one, f"/a?len={n}", f"{key}-{n}") for n in range(60)]
    for n, first in enumerate(firsts):
        assert first.status == 200 and request(other, f"/a?len={n}", f"{key}-{n}").same_as(first)
    assert tally.count("/a") == 60
    assert all(master.cells("idem:") for master in cluster.masters())


def test_a_duplicate_that_waits_is_woken_wherever_the_key_is(guarded, tally, key, cluster):
    one, other = (guarded("idempotency_wait 30s;", http=cluster.line(), workers=1) for _ in range(2))
    answers, clients = [], []
    for n in range(20):
        clients.append(Http1(one.port))
        clients[-1].send("/a?gate=g", f"{key}-{n}")
    wait_until(lambda: tally.count("/a") == 20)
    threads = [threading.Thread(target=lambda n=n: answers.append(request(other, "/a?gate=g", f"{key}-{n}")), daemon=True)
               for n in range(20)]
    for thread in threads:
        thread.start()
    settle(0.5)
    asked = sum(times(master, "evalsha") for master in cluster.masters())
    tally.open("g")
    firsts = [client.read() for client in clients]
    for thread in threads:
        thread.join(30)
    assert {a.body for a in answers} == {f.body for f in firsts} and len(answers) == 20 and tally.count("/a") == 20
    # a completion and an answer for each: nobody had to ask in vain
    assert sum(times(master, "evalsha") for master in cluster.masters()) - asked <= 2 * 20 + 5


def test_a_slot_that_is_on_its_way_is_found_at_both_ends(guarded, tally, key, cluster):
    """ASK: what is not at the old place any more, or not yet, is at the new one."""
    gateway = guarded("idempotency_wait 0;", http=cluster.line(), workers=1)
    first = request(gateway, "/a", key)
    ((name, _, _),) = [cell for master in cluster.masters() for cell in master.cells("idem:")]
    slot = cluster.servers[0].cli("CLUSTER", "KEYSLOT", name)
    source = cluster.holder(name)
    target = next(master for master in cluster.masters() if master is not source)
    ids = {server: server.cli("CLUSTER", "MYID") for server in (source, target)}
    target.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target])
    assert request(gateway, "/a", key).same_as(first)
    # as if it had never been there: it is made at the new place
    source.cli("DEL", name)
    second = request(gateway, "/a", key)
    assert second.status == 200 and not second.replayed and times(target, "asking") >= 2
    assert request(gateway, "/a", key).same_as(second) and source.cli("EXISTS", name) != "1"
    for server in (target, source):
        server.cli("CLUSTER", "SETSLOT", slot, "NODE", ids[target])
    assert request(gateway, "/a", key).same_as(second)
    assert target.cli("EXISTS", name) == "1" and tally.count("/a") == 2


def test_while_slots_move_under_load_no_answer_is_lost_and_nothing_executed_twice(guarded, tally, cluster):
    load = PatientLoad([guarded(http=cluster.line()) for _ in range(2)], clients=4)
    load.go_on()
    masters = cluster.masters()
    for source, target in zip(masters, masters[1:]):
        cluster.manage("reshard", cluster.address(source), "--cluster-from", source.cli("CLUSTER", "MYID"),
                       "--cluster-to", target.cli("CLUSTER", "MYID"), "--cluster-slots", "1000")
    load.go_on()
    load.end(tally)


def test_scripts_that_the_servers_have_forgotten_are_sent_again(guarded, tally, key, cluster):
    gateway = guarded("idempotency_wait 0;", http=cluster.line(), workers=1)
    for n in range(4):
        for master in cluster.masters():
            master.cli("SCRIPT", "FLUSH")
        assert request(gateway, "/a", f"{key}-{n}").status == 200
        assert request(gateway, "/a", f"{key}-{n}").replayed
    assert tally.count("/a") == 4


def test_when_a_master_is_killed_under_load_its_replica_takes_over_and_nothing_is_executed_twice(guarded, tally, cluster):
    line = cluster.line(options="?wait_replicas=1,500", seeds=6)
    load = PatientLoad([guarded("idempotency_lease 20s; idempotency_wait 0;", http=line) for _ in range(2)], clients=4)
    load.go_on()
    master = cluster.masters()[0]
    master.kill()
    wait_until(lambda: len(cluster.masters()) == 3, 30, "the replica to take over")
    # it comes back as the replica that the new master lacks
    master.start()
    load.go_on()
    load.end(tally)
    assert load.refused, "nobody noticed"
