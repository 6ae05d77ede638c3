#!/usr/bin/env python3
"""Load test of `yggc serve`: concurrent well-behaved, slow, disconnecting, malformed and hostile clients, with every answer checked.

    benches/soak.py --yggc target/release/yggc --seconds 600 --out OUT.json -- --plan FILE.plan

Arguments after `--` go to `yggc serve`. Before the load, every request is answered once alone by plain decoding; under load the same
request must give the same text, so lost, truncated and exchanged answers are found. Beside the good clients those of `soak_hostile.py` do
what harm they can. The exit status is 0 if every answer was right and came within five seconds of its turn, no status was unexpected, memory
did not grow, the queue ended empty and the server exited cleanly; otherwise it is 1, with the reasons. Needs nothing but Python's standard
library.
"""

import argparse
import collections
import functools
import json
import random
import re
import subprocess
import sys
import threading
import time

from soak_hostile import HOSTILE
from soak_http import PATH, PATIENCE, TERMS, QUESTIONS, Broken, Connection, asked, events

# The median memory may grow by so much from the second to the last fifth of the load: allocators keep some of what many threads freed.
MOST_GROWTH_KIB = 4 << 10
# A good request may be answered so many seconds later than its turn and its time alone.
MOST_LATE_S = 5.0


def percentile(numbers, share):
    ordered = sorted(numbers)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else None


class Turns:
    """When it is a request's turn: one is answered at a time, in the order in which they come."""

    def __init__(self):
        self.lock = threading.Lock()
        self.open = {}
        self.ended = []
        self.count = 0

    def begin(self):
        with self.lock:
            self.count += 1
            self.open[self.count] = time.monotonic()
            return self.count

    def end(self, number, alone=False):
        """The seconds from a request's turn, when all that were sent before it had ended, to now; if it is alone, from its sending."""
        with self.lock:
            now, sent = time.monotonic(), self.open.pop(number)
            turn = max([sent, *(end for begin, end in self.ended if begin < sent and not alone)])
            self.ended.append((sent, now))
            oldest = min(self.open.values(), default=now)
            self.ended = [entry for entry in self.ended if entry[1] > oldest]
            return now - turn


class Soak:
    def __init__(self, options, process, address):
        self.options, self.process, self.address = options, process, address
        self.expected = {}
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.wrong = []
        self.tpot_ms = {"alone": [], "loaded": []}
        self.turns = Turns()
        self.alone_s = collections.defaultdict(float)
        self.late_s = []
        self.slowed = collections.deque(maxlen=5)
        self.rss_kib = []
        self.end = 0.0

    # What is counted.

    def count(self, what):
        with self.lock:
            self.counts[what] += 1

    def fail(self, what):
        with self.lock:
            self.counts["wrong"] += 1
            self.wrong.append(what)

    def memory_kib(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1])

    def get(self, path):
        with Connection(self.address) as connection:
            connection.send(b"", path, "GET")
            status, headers = connection.head()
            return status, b"".join(connection.body(headers)).decode()

    def metric(self, name):
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    # Requests that are answered.

    def judge(self, key, text, reason):
        if (text, reason) != self.expected[key]:
            raise Broken(f"{key}: expected {self.expected[key]}, found {(text, reason)}")

    def ended(self, turn, key, generating_s=None):
        """Notes how long a good request took beyond its turn and its own time; before the load, its time alone.

        Its own time is that between its first and its last token where it was streamed. Else it is its time alone, as many times as the
        last streams took longer than alone: other programs may slow all of them down.
        """
        took = self.turns.end(turn)
        with self.lock:
            if not self.end:
                self.alone_s[key] = max(self.alone_s[key], took)
                return
            if generating_s is not None:
                self.slowed.append(max(1.0, generating_s / self.alone_s[key]))
            own_s = self.alone_s[key] * max(self.slowed, default=1.0) if generating_s is None else generating_s
            late = took - own_s
            self.late_s.append(late)
        if late > MOST_LATE_S:
            raise Broken(f"{key} was answered {late:.1f} s later than its turn")

    def refused_in_time(self, turn):
        """A refusal waits for nobody's turn."""
        took = self.turns.end(turn, alone=True)
        if took > MOST_LATE_S:
            raise Broken(f"a request was refused after {took:.1f} s")

    def whole(self, connection, key, **more):
        turn = self.turns.begin()
        connection.send(asked(*key, self.options.tokens, **more))
        status, headers = connection.head()
        body = b"".join(connection.body(headers))
        if status != 200:
            self.refused_in_time(turn)
            return status, body, headers
        self.ended(turn, key)
        choice = json.loads(body)["choices"][0]
        return 200, (choice["message"]["content"], choice["finish_reason"]), headers

    def streamed(self, connection, key, place=None, size=65536, pause=0.0):
        """Streams an answer and judges it; notes its time per token under `place`."""
        more = {"stream": True, "stream_options": {"include_usage": True}}
        turn = self.turns.begin()
        connection.send(asked(*key, self.options.tokens, **more))
        status, headers = connection.head()
        if status != 200:
            answer = b"".join(connection.body(headers))
            self.refused_in_time(turn)
            return status, answer, headers
        text, reason, tokens, times, ended = "", None, 0, [], False
        for event in events(connection.body(headers, size, pause)):
            if ended:
                raise Broken("something follows the end of a stream")
            if event == b"[DONE]":
                ended = True
                continue
            event = json.loads(event)
            if "error" in event:
                raise Broken(f"a stream ended with {event}")
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            for choice in event["choices"]:
                if choice["delta"].get("content"):
                    times.append(time.monotonic())
                    text += choice["delta"]["content"]
                reason = choice["finish_reason"] or reason
        if not ended:
            raise Broken("a stream has no end")
        # One that reads slowly makes itself late.
        self.turns.end(turn) if pause else self.ended(turn, key, times[-1] - times[0] if times else 0.0)
        self.judge(key, text, reason)
        if place and tokens > 8:
            self.tpot_ms[place].append((times[-1] - times[0]) * 1e3 / (tokens - 1))
        return 200, (text, reason), headers

    def keys(self):
        return [(question, terms) for question in range(len(QUESTIONS)) for terms in range(len(TERMS))]

    def prepare(self):
        """What plain decoding says to every request, asked alone; then the times of streams, asked alone."""
        with Connection(self.address) as connection:
            for key in self.keys():
                status, answer, _ = self.whole(connection, key, drafter="none")
                if status != 200:
                    raise Broken(f"{key} was answered with {status} before the load: {answer!r}")
                self.expected[key] = answer
            for _ in range(self.options.alone):
                for key in self.keys():
                    self.streamed(connection, key, "alone")

    # Clients. Each does one thing, again and again until the end.

    def refused(self, status, headers, who):
        """A queue that is full is no fault: the client waits and asks again."""
        if status != 429 or int(headers.get("retry-after", "0")) < 1:
            raise Broken(f"{who} was answered with {status}")
        self.count("429 queue full")
        time.sleep(0.05)

    def steady(self, dice):
        with Connection(self.address) as connection:
            while time.monotonic() < self.end:
                key = dice.choice(self.keys())
                status, _, headers = self.streamed(connection, key, "loaded")
                self.count("answered: streams") if status == 200 else self.refused(status, headers, "a stream")

    def asking(self, dice):
        key = dice.choice(self.keys())
        with Connection(self.address) as connection:
            status, answer, headers = self.whole(connection, key)
        if status == 200:
            self.judge(key, *answer)
            self.count("answered: whole")
        else:
            self.refused(status, headers, "a request")

    def slow(self, dice):
        """Reads a stream by a few bytes, with pauses; sends its body in two parts."""
        key = dice.choice(self.keys())
        with Connection(self.address) as connection:
            status, _, headers = self.streamed(connection, key, None, dice.randrange(1, 40), 0.01)
        self.count("answered: slow readers") if status == 200 else self.refused(status, headers, "a slow reader")

    def leaving(self, dice):
        """Goes away: before the body, before the answer, or in the middle of it; with a reset or without."""
        connection = Connection(self.address)
        body = asked(*dice.choice(self.keys()), 200, stream=True, ignore=dice.random())
        how = dice.randrange(4)
        turn = self.turns.begin()
        if how == 0:
            head = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.socket.sendall(head.encode() + body[: dice.randrange(len(body))])
        else:
            connection.send(body)
        if how == 2:
            connection.socket.recv(1)
        elif how == 3:
            status, headers = connection.head()
            for _ in zip(range(dice.randrange(1, 6)), connection.body(headers)):
                pass
            self.count(f"left after status {status}")
        time.sleep(dice.random() * 0.05)
        connection.reset() if dice.random() < 0.5 else connection.socket.close()
        self.turns.end(turn)
        self.count("left")
        time.sleep(0.02)

    def malformed(self, dice):
        """Sends what is no request; the only answers to that are refusals."""
        good = json.loads(asked(*dice.choice(self.keys()), 8))
        junk = b"\1" + bytes(dice.randrange(256) for _ in range(dice.randrange(60)))
        field, value = dice.choice(
            [("temperature", -1), ("top_p", -1), ("n", 5), ("messages", []), ("messages", [{"role": "x", "content": "y"}])]
            + [("max_tokens", 0), ("stop", [""]), ("seed", 1.5), ("logit_bias", {"x": 1}), ("drafter", "oracle")]
            + [("tools", [{}]), ("temperature", {"a": [1]}), ("messages", "text"), ("top_logprobs", 3)]
        )
        cut = json.dumps(good).encode()
        expected, send = dice.choice(
            [
                ({400}, lambda c: c.send(json.dumps(good | {field: value}).encode())),
                ({400}, lambda c: c.send(cut[: dice.randrange(len(cut))])),
                ({400}, lambda c: c.send(junk)),
                ({404}, lambda c: c.send(json.dumps(good | {"model": "other"}).encode())),
                ({404}, lambda c: c.send(cut, "/v1/engines")),
                ({405}, lambda c: c.send(b"", PATH, "GET")),
                ({413}, lambda c: c.send(b'{"messages": "' + b"x" * (2 << 20) + b'"}')),
                ({400, 404, 405, 431, 501, 505, None}, lambda c: c.socket.sendall(junk + b"\r\n\r\n")),
                ({400, 431, None}, lambda c: c.socket.sendall(b"GET / HTTP/1.1\r\na: " + b"y" * (1 << 20) + b"\r\n\r\n")),
            ]
        )
        with Connection(self.address) as connection:
            try:
                send(connection)
                status, headers = connection.head()
                list(connection.body(headers))
            except (Broken, ConnectionError):
                # A server that refuses may close before it has read everything.
                status = None
                expected = expected | ({None} if expected & {413, 431} or None in expected else set())
        if status not in expected:
            raise Broken(f"a malformed request was answered with {status}, expected {expected}")
        self.count(f"refused: {status or 'closed'}")
        time.sleep(0.02)

    def dawdling(self, dice):
        """Begins a head or a body and does not go on; the server need not wait, nor mind."""
        with Connection(self.address) as connection:
            start = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{{"
            connection.socket.sendall(start[: dice.randrange(4, len(start))].encode())
            for _ in range(20):
                if time.monotonic() > self.end:
                    break
                time.sleep(0.1)
        self.count("dawdled")

    def run(self, client, number):
        name = getattr(client, "func", client).__name__
        dice = random.Random(f"{self.options.seed} {name} {number}")
        while time.monotonic() < self.end:
            try:
                client(dice)
            except (Broken, OSError, ValueError, KeyError) as error:
                self.fail(f"{name}: {type(error).__name__}: {error}")
                time.sleep(0.2)

    def load(self):
        """All clients at once."""
        begun = time.monotonic()
        self.end = begun + self.options.seconds
        clients = [self.steady, self.steady, self.asking, self.asking, self.slow, self.leaving, self.malformed, self.dawdling]
        clients += [functools.partial(client, self) for client in HOSTILE if client.__name__ not in self.options.without]
        threads = [threading.Thread(target=self.run, args=(client, i)) for i, client in enumerate(clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < self.end:
            time.sleep(min(0.5, max(0.0, self.end - time.monotonic())))
            if self.process.poll() is not None:
                self.fail(f"the server ended with {self.process.returncode}")
                break
            self.rss_kib.append((time.monotonic() - begun, self.memory_kib()))
            try:
                asked_at = time.monotonic()
                status, text = self.get("/health")
                took = time.monotonic() - asked_at
                if (status, json.loads(text)["status"]) != (200, "ok") or took > MOST_LATE_S:
                    self.fail(f"/health said {status} after {took:.1f} s: {text}")
            except (Broken, OSError) as error:
                self.fail(f"/health: {error}")
        for thread in threads:
            thread.join(PATIENCE)
            if thread.is_alive():
                self.fail("a client waits for an answer that does not come")

    def memory(self):
        """The median memory of the second and of the last fifth of the load, and its peak, in MiB; growth beyond what is allowed is wrong."""
        if len(self.rss_kib) < 10:
            return None
        fifth = self.options.seconds / 5
        within = lambda i: percentile([kib for at, kib in self.rss_kib if i * fifth <= at <= (i + 1) * fifth], 0.5)
        warm, end = within(1), within(4)
        # What threads take when they first compile a constraint is still growing within the first minute.
        if self.options.seconds >= 60 and end > warm + MOST_GROWTH_KIB:
            self.fail(f"memory grew from {warm} to {end} KiB")
        peak = max(kib for _, kib in self.rss_kib)
        return {name: round(kib / 1024, 1) for name, kib in [("warm", warm), ("end", end), ("peak", peak)]}

    def settle(self):
        """Nothing is answered any more, and what is asked now is answered as before."""
        for _ in range(100):
            left = [self.metric(name) for name in ["yggc_requests_running", "yggc_queue_length"]]
            if not any(left):
                break
            time.sleep(0.1)
        else:
            self.fail(f"requests are left when all clients are gone: {left}")
        with Connection(self.address) as connection:
            for key in self.keys():
                self.streamed(connection, key)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--yggc", default="target/release/yggc", help="the program")
    parser.add_argument("--seconds", type=float, default=600, help="how long the load lasts")
    parser.add_argument("--tokens", type=int, default=48, help="most tokens of an answer")
    parser.add_argument("--alone", type=int, default=2, help="how often everything is streamed without load")
    parser.add_argument("--seed", type=int, default=1, help="of what clients do")
    parser.add_argument("--without", action="append", default=[], choices=[client.__name__ for client in HOSTILE], help="leave out a kind of hostile client")
    parser.add_argument("--out", help="write the summary here too, as JSON")
    parser.add_argument("serve", nargs="*", help="arguments of `yggc serve`")
    options = parser.parse_args()

    command = [options.yggc, "serve", "--port", "0", "--model-name", "soak", "--queue", "4", *options.serve]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    found = re.fullmatch(r"http://([\d.]+):(\d+)\n", line)
    if not found:
        process.kill()
        sys.exit(f"expected the server's address on its first line, found {line!r}")
    soak = Soak(options, process, (found[1], int(found[2])))
    summary = {"seconds": options.seconds, "tokens": options.tokens, "serve": options.serve}
    try:
        soak.prepare()
        soak.load()
        summary["rss_mib"] = soak.memory()
        if process.poll() is None:
            soak.settle()
    except (Broken, OSError) as error:
        soak.fail(f"{type(error).__name__}: {error}")
    finally:
        process.terminate()
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            code = "no end within its time"
    if code != 0:
        soak.fail(f"the server ended with {code} when it was told to")
    for what in ["answered: streams", "answered: whole", "answered: slow readers", "left"]:
        if not soak.counts[what]:
            soak.fail(f"no request was {what}: the load was too short")
    # Seconds by which good requests were answered later than their turn and their time alone.
    summary["late_s"] = {name: round(percentile(soak.late_s, share), 3) if soak.late_s else None for name, share in [("p50", 0.5), ("p99", 0.99), ("most", 1.0)]}
    for place, times in soak.tpot_ms.items():
        summary[f"tpot_ms_{place}"] = {
            name: round(percentile(times, share), 3) if times else None for name, share in [("p50", 0.5), ("p99", 0.99)]
        } | {"requests": len(times)}
    summary["counts"] = dict(sorted(soak.counts.items()))
    summary["wrong"] = soak.wrong[:20]
    text = json.dumps(summary, indent=1)
    print(text)
    if options.out:
        with open(options.out, "w", encoding="utf-8") as out:
            out.write(text + "\n")
    sys.exit(1 if soak.wrong else 0)


if __name__ == "__main__":
    main()
