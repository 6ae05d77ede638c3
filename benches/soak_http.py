"""What the clients of `soak.py` are made of: one HTTP/1.1 connection by hand, and the requests whose answers are known."""

import json
import socket
import struct
import time

QUESTIONS = [
    "Name five rivers.",
    "What is a prime number?",
    "Write one sentence about the sea.",
    "Repeat three times: the quick brown fox jumps over the lazy dog.",
    "Translate to French: good morning.",
    "List the days of the week.",
    "Why is the sky blue?",
    "Count from one to ten.",
]
# What is asked of each question: greedy, sampled, ended by a string, with penalties.
TERMS = [
    {"temperature": 0},
    {"temperature": 0.9, "top_p": 0.95, "seed": 7},
    {"temperature": 0.7, "seed": 11, "stop": ["e ", "\n"]},
    {"temperature": 1.0, "top_k": 40, "seed": 5, "presence_penalty": 0.5, "frequency_penalty": 0.2},
]
PATH = "/v1/chat/completions"
# A server that does not answer in so many seconds is broken.
PATIENCE = 120


class Broken(Exception):
    """An answer that is not what was expected."""


class Connection:
    """One HTTP/1.1 connection, by hand: clients here do what no library does."""

    def __init__(self, address, timeout=PATIENCE):
        self.socket = socket.create_connection(address, timeout=timeout)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def reset(self):
        """Closes it so that the server is told with a reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def send(self, body, path=PATH, method="POST"):
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.socket.sendall(head.encode() + body)

    def more(self, size=65536):
        piece = self.socket.recv(size)
        if not piece:
            raise Broken("the connection was closed in the middle of an answer")
        self.buffer += piece

    def until(self, mark, size=65536):
        while mark not in self.buffer:
            self.more(size)
        found, self.buffer = self.buffer.split(mark, 1)
        return found

    def exactly(self, count, size=65536):
        while len(self.buffer) < count:
            self.more(size)
        found, self.buffer = self.buffer[:count], self.buffer[count:]
        return found

    def rest(self):
        """All until the server closes the connection."""
        while piece := self.socket.recv(65536):
            self.buffer += piece
        found, self.buffer = self.buffer, b""
        return found

    def head(self):
        """The status and the headers of a response."""
        lines = self.until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines[1:])
        return int(lines[0].split(" ")[1]), headers

    def body(self, headers, size=65536, pause=0.0):
        """The pieces of a body as they come."""
        if "content-length" not in headers and "transfer-encoding" not in headers:
            yield self.rest()
            return
        if "content-length" in headers:
            yield self.exactly(int(headers["content-length"]), size)
            return
        while length := int(self.until(b"\r\n", size), 16):
            yield self.exactly(length, size)
            self.exactly(2, size)
            time.sleep(pause)
        self.exactly(2, size)


def asked(question, terms, tokens, **more):
    messages = [{"role": "user", "content": QUESTIONS[question]}]
    return json.dumps({"messages": messages, "max_tokens": tokens} | TERMS[terms] | more).encode()


def events(pieces):
    """The data of server-sent events, however they were cut."""
    rest = b""
    for piece in pieces:
        rest += piece
        while b"\n\n" in rest:
            event, rest = rest.split(b"\n\n", 1)
            yield event.removeprefix(b"data: ")
    if rest:
        raise Broken(f"a stream ended inside an event: {rest[:80]!r}")
