"""Several gateways, each as on a machine of its own, over one store on a server."""
import statistics
import threading
import time

import pytest

from harness.client import Http1, request
from harness.gateway import settle
from harness.load import code
from harness.stores import store_line
from harness.wait import wait_until

pytestmark = pytest.mark.server_only

HOW_MANY = pytest.mark.parametrize("count", [2, 4])


@pytest.fixture
def many(guarded, tmp_path):
    def start(count, extra=""):
        line = store_line(directory=str(tmp_path))
        return [guarded(extra, http=line) for _ in range(count)]

    return start


def executing(gateway, tally, key):
    """A client whose request is with the backend until gate "g" is opened."""
    client = Http1(gateway.port)
    before = tally.count("/a")
    client.send("/a?gate=g", key)
    wait_until(lambda: tally.count("/a") > before, what="the execution to begin")
    return client


def in_threads(works):
    """Starts each; returns a function that waits for all of them."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()

    def join():
        for thread in threads:
            thread.join(60)

    return join


@HOW_MANY
def test_200_clients_spread_over_gateways_with_one_key_are_one_execution_and_one_answer(many, tally, key, count):
    gateways = many(count, "idempotency_wait 30s;")
    answers = []

    def ask(n):
        answers.append(request(gateways[n % count], "/a?sleep=0.2", key))

    in_threads([lambda n=n: ask(n) for n in range(200)])()
    assert tally.count("/a") == 1 and len(answers) == 200
    assert {(a.status, a.body) for a in answers} == {(200, answers[0].body)}
    assert sum(not a.replayed for a in answers) == 1


@HOW_MANY
def test_keys_that_all_gateways_are_asked_for_at_once_are_executed_once_each(many, tally, key, count):
    gateways = many(count, "idempotency_wait 30s;")
    answers = {n: [] for n in range(50)}

    def ask(gateway):
        with Http1(gateway.port) as client:
            for n in answers:
                client.send(f"/a?len={n * 100}", f"{key}-{n}")
                answers[n].append(client.read())

    in_threads([lambda g=g: ask(g) for g in gateways * 4])()
    assert tally.count("/a") == len(answers)
    for of_one in answers.values():
        assert len(of_one) == 4 * count and all(a.same_as(of_one[0]) for a in of_one)


def test_a_duplicate_that_waits_at_another_gateway_is_told_of_the_end_and_need_not_ask(many, tally, key):
    one, other = many(2, "idempotency_wait 30s;")
    late = [wake_up(one, other, tally, f"{key}-{n}") for n in range(20)]
    median = statistics.median(late)
    print(f"woken after {1000 * median:.1f} ms (median), {1000 * max(late):.1f} ms (worst)")
    # It would ask by itself once a second: on average it would be half a second late.
    assert median < 0.1, late


def wake_up(one, other, tally, key):
    """How much later than the first client's the answer to a duplicate at the other gateway is."""
    answers, gate = {}, key
    target = f"/a?gate={gate}&keep=1"

    def ask(gateway):
        with Http1(gateway.port) as client:
            client.send(target, key)
            answers[gateway] = (client.read(), time.monotonic())

    before = tally.count("/a")
    join_first = in_threads([lambda: ask(one)])
    wait_until(lambda: tally.count("/a") > before, what="the execution to begin")
    join_other = in_threads([lambda: ask(other)])
    settle(0.1)
    assert not answers
    tally.open(gate)
    join_first()
    join_other()
    (first, done), (again, told) = answers[one], answers[other]
    assert again.replayed and again.same_as(first)
    return told - done


def test_waiters_at_all_other_gateways_are_woken(many, tally, key):
    gateways = many(4, "idempotency_wait 30s;")
    stamps = []

    def wait(gateway):
        assert request(gateway, "/a?gate=g", key).replayed
        stamps.append(time.monotonic())

    client = executing(gateways[0], tally, key)
    join = in_threads([lambda g=g: wait(g) for g in gateways * 10])
    settle(0.5)
    assert not stamps
    opened = time.monotonic()
    tally.open("g")
    assert client.read().status == 200
    client.close()
    join()
    assert len(stamps) == 40 and tally.count("/a") == 1
    # were it their own asking that woke them, they would spread over a second
    assert sorted(stamps)[20] - opened < 0.4


@HOW_MANY
def test_what_a_killed_gateway_was_executing_is_in_progress_for_its_lease_and_then_unknown(many, tally, key, count):
    first, *others = many(count, "idempotency_lease 2s; idempotency_wait 0;")
    client = executing(first, tally, key)
    first.kill()
    killed = time.monotonic()
    client.close()
    for gateway in others:
        assert code(request(gateway, "/a?gate=g", key)) == "in-progress"
    for gateway in others:
        wait_until(lambda: code(request(gateway, "/a?gate=g", key)) == "outcome-unknown", 10)
    # it was renewed a third of the lease ago, or less
    assert time.monotonic() - killed > 2 * 2 / 3 - 0.2
    tally.open("g")
    first.start()
    for gateway in (first, *others):
        assert code(request(gateway, "/a?gate=g", key)) == "outcome-unknown"
    assert tally.count("/a") == 1


def test_a_duplicate_that_waits_when_the_executing_gateway_is_killed_learns_that_nobody_knows(many, tally, key):
    one, other = many(2, "idempotency_lease 1s; idempotency_wait 30s;")
    client, answers = executing(one, tally, key), []
    join = in_threads([lambda: answers.append(request(other, "/a?gate=g", key))] * 5)
    settle(0.2)
    one.kill()
    client.close()
    join()
    assert [code(answer) for answer in answers] == ["outcome-unknown"] * 5 and tally.count("/a") == 1


def test_under_retry_another_gateway_executes_what_a_killed_one_left(many, tally, key):
    one, other = many(2, "idempotency_lease 1s; idempotency_wait 30s; idempotency_in_doubt retry;")
    client = executing(one, tally, key)
    one.kill()
    client.close()
    tally.open("g")
    again = request(other, "/a?gate=g", key)
    assert again.status == 200 and not again.replayed
    one.start()
    assert request(one, "/a?gate=g", key).same_as(again)
    assert [r.header("Idempotency-Attempt") for r in tally.seen("/a")] == [["1"], ["2"]]
