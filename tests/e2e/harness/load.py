"""Clients that never rest: they ask for new keys and again for old ones, and remember what they were answered."""
import collections
import contextlib
import itertools
import json
import random
import threading

from .client import Http1
from .gateway import settle
from .wait import wait_until

PER_CONNECTION = 50


def key_of(n):
    return f"key-{n}"


def target_of(n):
    return f"/pay?len={64 + n * 997 % 5000}"


def code(response):
    """What kind of an answer of the guard's own it is, or nothing."""
    if response.get("Content-Type") != "application/problem+json":
        return None
    return json.loads(response.body)["code"]


class Load:
    """Under idempotency_in_doubt reject a key has one answer for good, whoever asks, and whatever happens meanwhile."""

    def __init__(self, gateways, clients=8):
        self.gateways = gateways
        self.answers = {}  # by number of key: the first whole answer that a client was sent
        self.wrong = []    # what no client should see
        self.broken = collections.Counter()  # connections that broke, by gateway
        self.lock = threading.Lock()
        self.numbers = itertools.count()
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self._run, args=(seed,), daemon=True) for seed in range(clients)]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.over.set()
        for thread in self.threads:
            thread.join(60)

    def _run(self, seed):
        chooser = random.Random(seed)
        while not self.over.is_set():
            gateway = chooser.choice(self.gateways)
            try:
                self._talk(gateway, chooser)
            except TimeoutError:
                self.wrong.append("no answer")
            except OSError:
                self.broken[gateway] += 1
                settle(0.01)

    def _talk(self, gateway, chooser):
        with Http1(gateway.port) as client:
            for _ in range(PER_CONNECTION):
                if self.over.is_set():
                    return
                # a new key, or one that others have just used or are using
                self._ask(client, max(next(self.numbers) - chooser.choice((0, 0, 0, 1, 5, 200)), 0))

    def _ask(self, client, n):
        known = self.answers.get(n)
        client.send(target_of(n), key_of(n))
        self._check(n, known, client.read())

    def _check(self, n, known, response):
        if response.status == 200:
            with self.lock:
                known = self.answers.setdefault(n, response)
            if not response.same_as(known):
                self.wrong.append((n, known.status, known.body[:80], response.body[:80]))
        elif known or code(response) not in ("in-progress", "outcome-unknown"):
            self.wrong.append((n, known and known.status, response.status, response.body[:300]))


class PatientLoad(Load):
    """To these clients a store that is away is no wrong answer: they count how often it was."""

    refused = 0

    def _check(self, n, known, response):
        if code(response) == "store-unavailable":
            self.refused += 1
        else:
            super()._check(n, known, response)

    def go_on(self, count=100):
        """Returns when so many more keys were answered for."""
        before = len(self.answers)
        wait_until(lambda: len(self.answers) > before + count, 30, "answers")

    def end(self, tally):
        """No client saw anything wrong, what was answered is answered so again, and nothing was executed twice."""
        self.stop()
        assert not self.wrong, self.wrong[:5]
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(Http1(gateway.port)) for gateway in self.gateways]
            for n, answer in self.answers.items():
                again = wait_until(lambda: kept(clients[n % len(clients)], n), 10, f"the answer of {n}")
                assert again.replayed and again.same_as(answer), n
        with tally.lock:
            executed = collections.Counter(r.header("Idempotency-Key")[0] for r in tally.requests if r.path == "/pay")
        assert set(executed.values()) == {1}, [key for key, count in executed.items() if count > 1]


def kept(client, n):
    """The answer to a key that was answered before, or nothing while it cannot be had."""
    client.send(target_of(n), key_of(n))
    response = client.read()
    return response.status == 200 and response
