"""The server of a store goes away, and comes back, at each point of a request's life."""
import os
import threading
import time

import pytest

from harness.client import Http1, request
from harness.gateway import settle
from harness.load import PatientLoad, code
from harness.stores import line_to, own_server
from harness.wait import wait_until
from harness.wire import Island, Wire, islands_are_allowed

pytestmark = pytest.mark.server_only

# The store's timeout is 500 ms: one operation may meet it once while it is sent, and once while a connection is made.
IN_TIME = 1.5
# Nobody notices the store's trouble.
AT_ONCE = 0.3

FREE = "location /free { return 200 free; }"


# Outages: begin() and end() may be called again and again


class Killed:
    def __init__(self):
        self.server = own_server()

    def begin(self):
        self.server.kill()

    def end(self):
        self.server.start()


class Frozen(Killed):
    def begin(self):
        self.server.freeze()

    def end(self):
        self.server.thaw()


class CutOff(Killed):
    """Packets are lost; nobody is told."""

    def __init__(self):
        self.island = Island()
        self.server = own_server("--protected-mode", "no", host=self.island.address, run=self.island.run)

    def begin(self):
        self.island.cut_off()

    def end(self):
        self.island.join()


class OutOfConnections(Killed):
    """All connections were lost, and new ones are refused by the server."""

    def begin(self):
        self.server.refuse_connections()

    def end(self):
        self.server.take_connections()


OUTAGES = [Killed, Frozen, OutOfConnections] + ([CutOff] if islands_are_allowed() else [])


@pytest.fixture(params=OUTAGES, ids=lambda outage: outage.__name__)
def outage(request):
    outage = request.param()
    yield outage
    outage.server.stop()


@pytest.fixture
def server():
    server = own_server()
    yield server
    server.stop()


@pytest.fixture
def served(guarded):
    """A gateway over the server. It has one worker, since each notices for itself that the server is back."""

    def start(server, extra="", **more):
        return guarded(extra, FREE, http=line_to(server, **more), workers=1)

    return start


def timed(work):
    began = time.monotonic()
    return work(), time.monotonic() - began


def refused_in_time(gateway, target, key):
    answer, seconds = timed(lambda: request(gateway, target, key))
    assert code(answer) == "store-unavailable" and answer.status == 503 and answer.get("Retry-After") == "1"
    assert seconds < IN_TIME
    return seconds


def free(gateway):
    """The other location is answered at once, whatever happens."""
    answer, seconds = timed(lambda: request(gateway, "/free"))
    assert answer.body == b"free" and seconds < AT_ONCE


def recovered(gateway, key, seconds=1.0):
    """New keys are executed within a second."""
    numbers = iter(range(1000))
    _, took = timed(lambda: wait_until(
        lambda: request(gateway, "/new", f"{key}-new-{next(numbers)}").status == 200, seconds + 5))
    print(f"recovered after {1000 * took:.0f} ms")
    assert took < seconds


def in_thread(work):
    results = []
    thread = threading.Thread(target=lambda: results.append(work()), daemon=True)
    thread.start()

    def join():
        thread.join(60)
        assert results, "it did not end"
        return results[0]

    return join


def executing(gateway, tally, key, target="/a?gate=g"):
    client = Http1(gateway.port)
    client.send(target, key)
    wait_until(lambda: tally.count("/a"), what="the execution to begin")
    return client


def descriptors(gateway):
    return sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in gateway.workers())


# At each point of a request's life


def test_before_the_claim_a_request_is_refused_in_time_and_not_executed(served, tally, key, outage):
    gateway = served(outage.server)
    request(gateway, "/a", key + "-before")
    outage.begin()
    join = in_thread(lambda: refused_in_time(gateway, "/a", key))
    for _ in range(10):
        free(gateway)
    join()
    for n in range(5):
        refused_in_time(gateway, "/a", f"{key}-{n}")
    assert tally.count("/a") == 1
    outage.end()
    recovered(gateway, key)
    assert request(gateway, "/a", key).status == 200 and tally.count("/a") == 2


def test_before_the_claim_a_request_passes_where_that_is_wanted(served, tally, key, outage):
    gateway = served(outage.server, "idempotency_store_error pass;")
    request(gateway, "/a", key)
    outage.begin()
    for n in range(3):
        answer, seconds = timed(lambda: request(gateway, "/a", key))
        assert answer.status == 200 and not answer.replayed and seconds < IN_TIME
        assert tally.count("/a") == 2 + n
    assert " store_error " in gateway.results(4)[-1]
    outage.end()
    wait_until(lambda: request(gateway, "/a", key).replayed, 5)


def test_between_claim_and_completion_the_client_gets_its_answer_and_later_so_does_a_retry(served, tally, key, outage):
    gateway = served(outage.server, "idempotency_lease 20s; idempotency_wait 0;")
    client = executing(gateway, tally, key)
    outage.begin()
    tally.open("g")
    join = in_thread(client.read)
    for _ in range(10):
        free(gateway)
    first, seconds = timed(join)
    assert first.status == 200 and not first.replayed and seconds < IN_TIME
    client.close()
    assert code(request(gateway, "/a?gate=g", key)) == "store-unavailable"
    outage.end()
    # what could not be written is written now
    again = wait_until(lambda: (r := request(gateway, "/a?gate=g", key)).status == 200 and r, 5)
    assert again.replayed and again.same_as(first) and tally.count("/a") == 1


def test_an_outage_that_is_over_before_the_completion_is_not_noticed(served, tally, key, outage):
    gateway = served(outage.server, "idempotency_lease 20s; idempotency_wait 0;")
    client = executing(gateway, tally, key)
    outage.begin()
    settle(0.6)
    outage.end()
    recovered(gateway, key)
    tally.open("g")
    first = client.read()
    client.close()
    assert first.status == 200 and request(gateway, "/a?gate=g", key).same_as(first) and tally.count("/a") == 1


def test_while_a_duplicate_waits_it_is_refused_or_gets_the_first_ones_answer(served, tally, key, outage):
    line = "idempotency_lease 20s; idempotency_wait 30s;"
    one, other = served(outage.server, line), served(outage.server, line)
    client = executing(one, tally, key)
    join = in_thread(lambda: request(other, "/a?gate=g", key))
    settle(0.2)
    outage.begin()
    settle(0.2)
    tally.open("g")
    first = client.read()
    client.close()
    free(other)
    settle(0.6)
    outage.end()
    answer = join()
    assert code(answer) == "store-unavailable" or (answer.replayed and answer.same_as(first))
    again = wait_until(lambda: (r := request(other, "/a?gate=g", key)).status == 200 and r, 5)
    assert again.replayed and again.same_as(first) and tally.count("/a") == 1


def test_during_a_replay_it_is_refused_or_whole_and_never_half(served, tally, key, outage):
    gateway = served(outage.server)
    target = "/a?len=300000"
    first, over, others = request(gateway, target, key), threading.Event(), []

    def replay():
        while not over.is_set():
            answer, seconds = timed(lambda: request(gateway, target, key))
            assert seconds < IN_TIME
            assert code(answer) == "store-unavailable" or (answer.replayed and answer.same_as(first))
            others.append(answer.status)
        return True

    joins = [in_thread(replay) for _ in range(4)]
    for _ in range(2):
        settle(0.1)
        outage.begin()
        wait_until(lambda: 503 in others, what="the outage to be noticed")
        outage.end()
        others.clear()
        wait_until(lambda: 200 in others, what="the end of the outage")
    over.set()
    for join in joins:
        join()
    assert tally.count("/a") == 1


def test_outages_leave_no_connection_and_no_descriptor_behind(served, key, outage):
    gateway = served(outage.server)
    request(gateway, "/a", key)
    before = wait_until(lambda: steady(gateway, outage.server), what="the connections to be made")
    for n in range(2):
        outage.begin()
        for _ in range(2):
            assert code(request(gateway, "/a", key)) == "store-unavailable"
        outage.end()
        recovered(gateway, f"{key}-{n}")
    wait_until(lambda: (outage.server.connections(), descriptors(gateway)) == before, 5,
               f"{outage.server.connections(), descriptors(gateway)} to become {before}")


def steady(gateway, server):
    """Connections and descriptors, once they have not changed for a moment."""
    before = server.connections(), descriptors(gateway)
    settle(0.3)
    return (server.connections(), descriptors(gateway)) == before and before


@pytest.mark.parametrize("kind", [kind for kind in OUTAGES if kind is not OutOfConnections])
def test_under_load_outages_lose_no_answer_and_execute_nothing_twice(served, tally, kind):
    outage = kind()
    load = PatientLoad([served(outage.server, "idempotency_lease 10s;") for _ in range(2)], clients=4)
    load.go_on()
    for _ in range(2):
        outage.begin()
        settle(0.7)
        outage.end()
        load.go_on()
    assert load.refused, "nobody noticed the outages"
    load.end(tally)
    outage.server.stop()


# What else may go wrong with a server


def test_what_could_not_be_recorded_within_its_lease_is_unknown(served, tally, key, server):
    gateway = served(server, "idempotency_lease 1s; idempotency_wait 0;")
    client = executing(gateway, tally, key)
    server.kill()
    tally.open("g")
    first = client.read()
    client.close()
    settle(1.2)
    server.start()
    recovered(gateway, key)
    assert first.status == 200 and code(request(gateway, "/a?gate=g", key)) == "outcome-unknown"
    assert tally.count("/a") == 1


def test_a_server_that_forgets_all_is_used_anew(served, tally, key):
    """Whoever lets it forget has been told that retries are executed again then."""
    server = own_server(keeps=False)
    gateway = served(server, "idempotency_wait 30s;")
    request(gateway, "/b", key)
    client = executing(gateway, tally, key + "-a")
    server.kill()
    server.start()
    recovered(gateway, key)
    again = in_thread(lambda: request(gateway, "/a?gate=g", key + "-a"))
    wait_until(lambda: tally.count("/a") == 2, what="the second execution")
    tally.open("g")
    # two executions, and one answer: who no longer holds the key is told to come again for it
    assert code(client.read()) == "in-progress"
    client.close()
    second = again()
    assert second.status == 200 and not second.replayed
    assert request(gateway, "/a?gate=g", key + "-a").same_as(second)
    assert not request(gateway, "/b", key).replayed and request(gateway, "/b", key).replayed
    server.stop()


def test_a_full_server_takes_no_new_keys_and_keeps_what_it_has_promised(served, tally, key, server):
    gateway = served(server, "idempotency_wait 0;")
    done = request(gateway, "/b", key)
    client = executing(gateway, tally, key + "-a")
    server.fill()
    refused_in_time(gateway, "/b", key + "-new")
    free(gateway)
    assert request(gateway, "/b", key).same_as(done)
    assert code(request(gateway, "/a?gate=g", key + "-a")) == "in-progress"
    tally.open("g")
    first = client.read()
    client.close()
    assert request(gateway, "/a?gate=g", key + "-a").same_as(first)
    server.make_room()
    recovered(gateway, key)
    assert tally.count("/a") == 1 and tally.count("/b") == 1
    assert "new keys are refused" in gateway.log() and "new keys are taken again" in gateway.log()


# The wire


@pytest.fixture
def wire(server):
    wire = Wire(server.port)
    yield wire
    wire.close()


def test_over_a_wire_of_200_ms_all_is_as_it_was_but_for_the_time(served, tally, key, server, wire):
    wire.delay = 0.1
    one, other = (served(server, "idempotency_wait 30s;", port=wire.port, timeout="2s") for _ in range(2))
    request(one, "/free")
    request(other, "/b", key + "-other")
    clients = [in_thread(lambda n=n: request(one, f"/b?len={n}", f"{key}-{n}")) for n in range(40)]
    _, seconds = timed(lambda: [join() for join in clients])
    # a claim and a completion, of all at once
    assert 0.4 < seconds < 2, seconds
    for n in range(3):
        assert request(other, f"/b?len={n}", f"{key}-{n}").replayed
    client = executing(one, tally, key)
    join = in_thread(lambda: request(other, "/a?gate=g", key))
    settle(0.5)
    tally.open("g")
    first = client.read()
    again, seconds = timed(join)
    client.close()
    assert again.same_as(first) and seconds < 0.8 and tally.count("/a") == 1 and tally.count("/b") == 41


def test_over_a_wire_that_is_slower_than_the_timeout_keys_are_refused_and_not_lost(served, tally, key, server, wire):
    gateway = served(server, "idempotency_wait 0;", port=wire.port)
    assert request(gateway, "/a", key).status == 200
    wire.delay = 0.3
    for n in range(5):
        refused_in_time(gateway, "/a", f"{key}-{n}")
        free(gateway)
    assert tally.count("/a") == 1
    wire.delay = 0
    for n in range(5):
        # a claim that was made, and whose answer came too late, was given back
        wait_until(lambda: request(gateway, "/a", f"{key}-{n}").status == 200, 5)
    assert tally.count("/a") == 6


@pytest.mark.parametrize("left", [0, 1, 100, 70000])
def test_an_answer_of_the_server_that_breaks_off_is_no_answer(served, key, tally, server, wire, left):
    gateway = served(server, port=wire.port)
    first = request(gateway, "/a?len=300000", key)
    wire.left = left
    refused_in_time(gateway, "/a?len=300000", key)
    wire.left = None
    again = wait_until(lambda: (r := request(gateway, "/a?len=300000", key)).status == 200 and r, 5)
    assert again.replayed and again.same_as(first) and tally.count("/a") == 1
