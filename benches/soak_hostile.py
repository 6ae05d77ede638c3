"""The hostile clients of `soak.py`: each does one kind of harm, again and again, and says what a server may answer to it.

A client is a function of the soak and of dice. It raises `Broken` where the server does what it must not.
"""

import json
import select
import socket
import time

from soak_http import PATH, Broken, Connection, asked

# Bytes of a body that is too large, and after how many an unending one must have been given up.
LARGE = 10 << 20
MOST_UNENDING = 1 << 28
# Connections that send a byte a second.
DRIPPING = 200
HEAD = f"POST {PATH} HTTP/1.1\r\nhost: localhost\r\n".encode()


def any_request(soak, dice, **more):
    return asked(*dice.choice(soak.keys()), 8, **more)


def chunks(body, dice):
    out = b""
    while body:
        piece, body = body[: (size := dice.randrange(1, 60))], body[size:]
        out += b"%x\r\n%s\r\n" % (len(piece), piece)
    return out + b"0\r\n\r\n"


def expect(soak, what, expected, send, must_read=False):
    """Sends something; the answer must have one of these statuses, where None is an end without one."""
    with Connection(soak.address) as connection:
        begun = time.monotonic()
        try:
            send(connection)
            status, headers = connection.head()
            list(connection.body(headers))
        except (Broken, ConnectionError) as error:
            status, expected = None, expected | {None}
            # One that takes longer may have given its place to another.
            if must_read and time.monotonic() - begun < 1:
                raise Broken(f"{what}: the refusal could not be read: {error}") from error
    if status not in expected:
        raise Broken(f"{what} was answered with {status}, expected one of {expected}")
    soak.count(f"{what}: {status or 'closed'}")


def dripping(soak, dice):
    """Many connections that send a byte a second, of heads and of bodies."""
    streams = []
    while time.monotonic() < soak.end:
        going = []
        for stream in streams:
            try:
                stream.send(b"y")
                going.append(stream)
            except OSError:
                stream.close()
        streams = going
        while len(streams) < DRIPPING:
            stream = socket.create_connection(soak.address, timeout=5)
            stream.sendall(HEAD + dice.choice([b"x: ", b"content-length: 1000\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\nfff\r\n{"]))
            streams.append(stream)
            soak.count("dripping: connected")
        time.sleep(1)
    for stream in streams:
        stream.close()


def half_closed(soak, dice):
    """Ends its sending side when it has asked, which means that it has left: it may be answered, and then rightly."""
    key = dice.choice(soak.keys())
    turn = soak.turns.begin()
    with Connection(soak.address) as connection:
        connection.send(asked(*key, soak.options.tokens))
        connection.socket.shutdown(socket.SHUT_WR)
        answer = connection.rest()
    soak.turns.end(turn)
    if b" 200 OK" in answer[:20]:
        choice = json.loads(answer.split(b"\r\n\r\n", 1)[1])["choices"][0]
        soak.judge(key, choice["message"]["content"], choice["finish_reason"])
    elif answer and b" 429 " not in answer[:20]:
        raise Broken(f"a half-closed request was answered with {answer[:200]}")
    soak.count("half closed")
    time.sleep(0.3)


def leaving_behind(soak, dice):
    """Sends more than its request and leaves: what it asked for must end at once."""
    turn = soak.turns.begin()
    connection = Connection(soak.address)
    connection.send(any_request(soak, dice, max_tokens=400))
    connection.socket.sendall(dice.choice([b"x", b"\r\n", b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"]))
    time.sleep(dice.random() * 0.1)
    connection.reset() if dice.random() < 0.3 else connection.socket.close()
    soak.turns.end(turn)
    soak.count("left behind a second request")
    time.sleep(0.3)


def in_other_forms(soak, dice):
    """Asks as few clients do: in chunks, twice at once, by HTTP/1.0 without a host, with another content type."""
    key = dice.choice(soak.keys())
    body = asked(*key, soak.options.tokens)
    length = b"content-length: %d\r\n\r\n" % len(body)
    kind = dice.choice([b"text/plain", b"application/x-www-form-urlencoded", b"application/json; charset=utf-16", b"multipart/form-data"])
    count, sent = dice.choice(
        [
            (1, HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunks(body, dice)),
            (1, HEAD + b"content-length: 7\r\ntransfer-encoding: chunked\r\n\r\n" + chunks(body, dice)),
            (2, 2 * (HEAD + length + body)),
            (1, f"POST {PATH} HTTP/1.0\r\n".encode() + length + body),
            (1, HEAD + b"content-type: " + kind + b"\r\n" + length + body),
        ]
    )
    with Connection(soak.address) as connection:
        connection.socket.sendall(sent)
        for _ in range(count):
            turn = soak.turns.begin()
            status, headers = connection.head()
            answer = b"".join(connection.body(headers))
            soak.turns.end(turn)
            if status == 200:
                choice = json.loads(answer)["choices"][0]
                soak.judge(key, choice["message"]["content"], choice["finish_reason"])
                soak.count("answered: other forms")
            else:
                soak.refused(status, headers, "a request of another form")
    time.sleep(0.2)


def misframed(soak, dice):
    """Says of its body what cannot be, or floods heads."""
    body = any_request(soak, dice)
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n"
    size = b"%d" % len(body)
    expected, sent = dice.choice(
        [
            ({400}, HEAD + b"content-length: " + size + b"\r\ncontent-length: 1" + size + b"\r\n\r\n" + body),
            ({400}, HEAD + b"content-length: -1\r\n\r\n" + body),
            ({400}, HEAD + b"content-length: 18446744073709551616\r\n\r\n" + body),
            ({413, 431}, HEAD + b"content-length: 18446744073709551615\r\n\r\n" + body),
            ({400}, HEAD + b"transfer-encoding: chunked, gzip\r\n\r\n" + body),
            ({400}, chunked + dice.choice([b"zz", b"-1", b"f" * 17, b"", b"5;" + b"x" * 99_000]) + b"\r\n" + body),
            ({400}, chunked + b"1\r\n{\r\n0\r\n" + b"a: b\r\n" * 10_000 + b"\r\n"),
            ({431}, b"GET / HTTP/1.1\r\nhost: localhost\r\n" + b"a: b\r\n" * dice.randrange(200, 9_000) + b"\r\n"),
            ({431}, b"GET / HTTP/1.1\r\nhost: localhost\r\na: " + b"y" * dice.randrange(70_000, 900_000) + b"\r\n\r\n"),
            ({404, 414, 431}, b"GET /" + b"y" * dice.randrange(1, 200_000) + b" HTTP/1.1\r\nhost: localhost\r\n\r\n"),
            ({403}, b"GET / HTTP/1.1\r\nhost: evil.org\r\n\r\n"),
        ]
    )
    expect(soak, "misframed", expected, lambda connection: connection.socket.sendall(sent), must_read=True)
    time.sleep(0.1)


def too_large(soak, dice):
    """A body that is too large, sent to its end; its client must be able to read why it is refused."""
    body = b'{"messages": "' + b"x" * LARGE + b'"}'
    if dice.random() < 0.5:
        sent = HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    else:
        sent = HEAD + b"transfer-encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n\r\n"
    expect(soak, "too large", {413}, lambda connection: connection.socket.sendall(sent), must_read=True)
    time.sleep(0.5)


def unending(soak, _):
    """A body without an end: the server must give it up."""
    sent = 0
    with Connection(soak.address) as connection:
        try:
            connection.socket.sendall(HEAD + b"transfer-encoding: chunked\r\n\r\n")
            while sent < MOST_UNENDING:
                connection.socket.sendall(b"10000\r\n" + b"x" * (1 << 16) + b"\r\n")
                sent += 1 << 16
            raise Broken(f"a body of {sent} bytes is still read")
        except ConnectionError:
            pass
    soak.count("unending: closed")
    time.sleep(1)


def twisted(soak, dice):
    """JSON that means nothing: fields twice, halves of surrogate pairs, deep nesting, numbers out of range."""
    good = json.loads(any_request(soak, dice))
    text = json.dumps(good)[1:]
    depth = dice.choice([200, 5_000, 200_000])
    half = dice.choice(["\\ud800", "\\udc00", "x\\udbffy"])
    deep = "[" * depth + "]" * depth
    bodies = [
        '{"max_tokens": 3, ' + text,
        '{"messages": [], ' + text,
        json.dumps(good | {"messages": [{"role": "user", "content": "HALF"}]}).replace("HALF", half),
        json.dumps(good | {"stop": "HALF"}).replace("HALF", half),
        json.dumps(good | {"chat_template_kwargs": {"x": "HALF"}}).replace("HALF", half),
        '{"messages": ' + deep + "}",
        '{"chat_template_kwargs": {"x": ' + deep + "}, " + text,
        '{"temperature": 1e999, ' + json.dumps({k: v for k, v in good.items() if k != "temperature"})[1:],
        '{"temperature": NaN, ' + json.dumps({k: v for k, v in good.items() if k != "temperature"})[1:],
        "\ufeff" + json.dumps(good),
    ]
    body = dice.choice(bodies).encode()
    expect(soak, "twisted", {400}, lambda connection: connection.send(body), must_read=True)
    time.sleep(0.05)


def grammars(soak, dice):
    """Schemas and expressions that take long, or nest deeply; waits for some and leaves during others."""
    size = dice.choice([40, 700, 5_000])
    references = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(size)} | {f"a{size}": {"type": "integer"}}
    patterns = {f"^{'[a-c]?' * (i % 7)}{i}.*x{i}": {"type": "integer"} for i in range(min(size, 700))}
    schema = dice.choice(
        [
            {"$ref": "#/$defs/a0", "$defs": references},
            {"type": "object", "patternProperties": patterns},
            {"type": "object", "properties": {f"p{i}": {"type": "integer"} for i in range(size)}},
            {"anyOf": [{"type": "object", "properties": {f"p{i}": {"const": i}}, "required": [f"p{i}"]} for i in range(min(size, 1_500))]},
            {"type": "string", "pattern": f"^(({'a?' * min(size, 700)}){{1,50}})*$"},
        ]
    )
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    body = any_request(soak, dice, response_format=form)
    turn = soak.turns.begin()
    with Connection(soak.address) as connection:
        connection.send(body)
        waits = dice.choice([0.05, 1.0, 60.0])
        if select.select([connection.socket], [], [], waits)[0]:
            status, headers = connection.head()
            list(connection.body(headers))
            if status not in {200, 400, 408, 413, 422, 429}:
                raise Broken(f"a grammar was answered with {status}")
            soak.count(f"grammars: {status}")
        else:
            soak.count("grammars: left")
            if waits > 5:
                raise Broken("a grammar was not answered in a minute")
    soak.turns.end(turn)
    time.sleep(0.5)


def not_reading(soak, dice):
    """Asks for a stream and reads nothing of it for a while; then leaves, or reads all of it."""
    # Nobody knows when it is answered, so it asks for little of the time in which others wait for their turn.
    with Connection(soak.address) as connection:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2304)
        connection.send(any_request(soak, dice, max_tokens=2, stream=True, logprobs=True, top_logprobs=20))
        time.sleep(dice.random() * 5)
        try:
            connection.rest() if dice.random() < 0.5 else connection.reset()
        except ConnectionError:
            pass
    soak.count("not reading")


HOSTILE = [dripping, half_closed, leaving_behind, in_other_forms, misframed, too_large, unending, twisted, grammars, not_reading]
