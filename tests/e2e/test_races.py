"""Duplicates at the same moment, and those who wait."""
import json
import threading
import time

import pytest

from harness.client import Http1, Http2, request
from harness.gateway import settle
from harness.wait import wait_until


def together(n, work):
    """Runs work(i) in n threads that start at the same moment; returns the results."""
    results = [None] * n
    barrier = threading.Barrier(n)

    def run(i):
        barrier.wait()
        results[i] = work(i)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return results


@pytest.mark.parametrize("round_", range(10))
def test_200_clients_with_one_key_are_one_execution_and_one_body(guarded, tally, key, round_):
    gateway = guarded("idempotency_wait 30s;", workers=4)
    answers = together(200, lambda i: request(gateway, "/race?sleep=0.2", key))
    assert tally.count("/race") == 1
    assert {(a.status, a.body) for a in answers} == {(200, answers[0].body)}
    assert sum(not a.replayed for a in answers) == 1


def test_without_waiting_the_others_are_told_to_come_again(guarded, tally, key):
    gateway = guarded("idempotency_wait 0; idempotency_retry_after 7s;", workers=4)
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        for answer in together(50, lambda i: request(gateway, "/a?gate=g", key)):
            assert answer.status == 409 and answer.get("Retry-After") == "7"
            assert json.loads(answer.body)["code"] == "in-progress"
        tally.open("g")
        assert first.read().status == 200
    assert tally.count("/a") == 1


def test_the_conflict_may_be_a_429(guarded, tally, key):
    gateway = guarded("idempotency_wait 0; idempotency_conflict_status 429;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        answer = request(gateway, "/a?gate=g", key)
        assert answer.status == 429 and json.loads(answer.body)["status"] == 429
        tally.open("g")


@pytest.mark.parametrize("version", [1, 2])
def test_a_waiting_duplicate_is_woken_on_every_worker(guarded, tally, key, version):
    """More waiters than workers, so that some of them wait on another worker than the first."""
    gateway = guarded("idempotency_wait 30s;", workers=4)
    waiters, stamps = 40, []
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        answers = []

        def wait():
            answers.append(request(gateway, "/a?gate=g", key, version))
            stamps.append(time.monotonic())

        threads = [threading.Thread(target=wait, daemon=True) for _ in range(waiters)]
        for thread in threads:
            thread.start()
        settle(0.5)
        assert not answers
        opened = time.monotonic()
        tally.open("g")
        assert first.read().status == 200
        for thread in threads:
            thread.join(60)
    assert len(answers) == waiters and all(a.replayed for a in answers)
    # The net poll is 1 s and each waiter's own: were it the poll that woke them, they would spread over a second.
    assert sorted(stamps)[waiters // 2] - opened < 0.4
    assert tally.count("/a") == 1


def test_a_wait_that_is_over_is_told_so_and_leaves_the_first_alone(guarded, tally, key):
    gateway = guarded("idempotency_wait 300ms;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        began = time.monotonic()
        assert request(gateway, "/a?gate=g", key).status == 409
        assert time.monotonic() - began >= 0.3
        tally.open("g")
        assert first.read().status == 200
    assert request(gateway, "/a?gate=g", key).replayed and tally.count("/a") == 1


def test_waiters_that_leave_leave_nothing_behind(guarded, tally, key):
    gateway = guarded("idempotency_wait 30s;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g", key)
        wait_until(lambda: tally.count("/a"))
        for _ in range(20):
            client = Http1(gateway.port)
            client.send("/a?gate=g", key)
            client.reset()
        with Http2(gateway.port2) as client:
            client.reset_stream(client.send("/a?gate=g", key))
        settle(0.2)
        tally.open("g")
        assert first.read().status == 200
    assert request(gateway, "/a?gate=g", key).replayed and tally.count("/a") == 1


def test_waiters_of_a_released_key_become_executions_one_after_another(guarded, tally, key):
    gateway = guarded("idempotency_wait 30s;")
    with Http1(gateway.port) as first:
        first.send("/a?gate=g&status=503", key)
        wait_until(lambda: tally.count("/a"))
        threads = [threading.Thread(target=request, args=(gateway, "/a?gate=g&status=503", key), daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        settle(0.3)
        assert tally.count("/a") == 1
        tally.open("g")
        assert first.read().status == 503
        for thread in threads:
            thread.join(60)
    assert tally.count("/a") == 4


def test_a_thousand_keys_under_many_clients_are_a_thousand_executions(guarded, tally):
    gateway = guarded("idempotency_wait 30s;", workers=4)

    def work(i):
        with Http1(gateway.port) as client:
            for n in range(250):
                client.send("/a?keep=1", f"key-{(n * 7 + i * 13) % 250 + (i % 4) * 250}")
                assert client.read().status == 200

    together(16, work)
    assert tally.count("/a") == 1000
