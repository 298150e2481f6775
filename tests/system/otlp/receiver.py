# SPDX-License-Identifier: Apache-2.0
"""A played receiver of OTLP/HTTP, and its reading of requests, written from OTLP's public specification and from nothing of ours."""
import collections
import gzip
import http.server
import struct
import threading

VARINT, FIXED64, BYTES = 0, 1, 2
CUMULATIVE = 2
Point = collections.namedtuple('Point', 'kind start time value flags description unit')


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """(number, value) of each field: an int, or bytes."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        kind = tag & 7
        if kind == VARINT:
            value, at = varint(data, at)
        elif kind == FIXED64:
            value, at = struct.unpack_from('<Q', data, at)[0], at + 8
        elif kind == BYTES:
            length, at = varint(data, at)
            value, at = data[at:at + length], at + length
            assert len(value) == length, 'a field is cut'
        else:
            raise AssertionError(f'type {kind} is in no message of OTLP')
        yield tag >> 3, value


def one(data, number, default=None):
    """The last field of this number: of two, it holds."""
    found = [value for key, value in fields(data) if key == number]
    return found[-1] if found else default


def all_of(data, number):
    return [value for key, value in fields(data) if key == number]


def double(bits):
    return struct.unpack('<d', struct.pack('<Q', bits))[0]


def packed(data, form):
    return list(struct.unpack(f'<{len(data) // 8}{form}', data))


def zigzag(value):
    return value >> 1 ^ -(value & 1)


def attributes(data, number):
    return {one(pair, 1).decode(): one(one(pair, 2), 1).decode() for pair in all_of(data, number)}


def explicit(point):
    """Count, sum, bounds and counts."""
    return one(point, 4), double(one(point, 5)), packed(one(point, 7, b''), 'd'), packed(one(point, 6), 'Q')


def exponential(point):
    """Count, sum, scale, zero count, zero threshold, and counts by index."""
    buckets, counts, at = one(point, 8), [], 0
    data = one(buckets, 2, b'')
    while at < len(data):
        count, at = varint(data, at)
        counts.append(count)
    first = zigzag(one(buckets, 1, 0))
    return (one(point, 4), double(one(point, 5)), zigzag(one(point, 6, 0)), one(point, 7, 0), double(one(point, 14, 0)),
            {first + i: count for i, count in enumerate(counts) if count})


# By the field of a Metric: kind, the fields of attributes and flags in a point, and its value.
KINDS = {5: ('gauge', 7, 8, lambda point: double(one(point, 4))),
         7: ('sum', 7, 8, lambda point: double(one(point, 4))),
         9: ('histogram', 9, 10, explicit),
         10: ('exponential', 1, 10, exponential)}


class Request:
    """Its only resource, and its points by name and labels."""

    def __init__(self, body):
        [resource_metrics] = all_of(body, 1)
        [scope] = all_of(resource_metrics, 2)
        assert not all_of(scope, 1), 'a scope would become labels'
        self.resource = attributes(one(resource_metrics, 1), 1)
        self.points = {}
        for metric in all_of(scope, 2):
            name = one(metric, 1).decode()
            [(number, data)] = [(number, data) for number, data in fields(metric) if number in KINDS]
            kind, attribute, flags, value = KINDS[number]
            if kind != 'gauge':
                assert one(data, 2) == CUMULATIVE, name
            if kind == 'sum':
                assert one(data, 3) == 1, f'{name} is not monotonic'
            for point in all_of(data, 1):
                labels = frozenset(attributes(point, attribute).items())
                assert (name, labels) not in self.points, f'{name} {labels} is there twice'
                self.points[name, labels] = Point(kind, one(point, 2, 0), one(point, 3), value(point), one(point, flags, 0),
                                                  one(metric, 2, b'').decode(), one(metric, 3, b'').decode())

    @property
    def times(self):
        return {point.time for point in self.points.values()}

    def value(self, name, **labels):
        return self.points[name, frozenset(labels.items())].value


class Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request, address):
        """Broken connections and refused certificates are what some tests are about."""


class Receiver:
    """`answers` are (status, headers, body, seconds) or raw bytes, one for each request; then all are accepted. `tls` is an ssl.SSLContext."""

    def __init__(self, port, tls=None):
        self.port, self.answers, self.heads, self.accepted, self.tries = port, collections.deque(), [], [], []
        self.tls, self.peers = tls, []  # the certificates of clients
        self.lock = threading.Lock()

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def do_POST(self):
                receiver.take(self)

            def log_message(self, *_):
                pass
        self.server = Server(('127.0.0.1', self.port), Handler)
        if self.tls:  # a handler's thread makes the handshake, when it reads
            self.server.socket = self.tls.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, kwargs={'poll_interval': 0.05}, daemon=True).start()
        return self

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, handler):
        body = handler.rfile.read(int(handler.headers['Content-Length']))
        if handler.headers.get('Content-Encoding') == 'gzip':
            body = gzip.decompress(body)
        with self.lock:
            self.heads.append((handler.path, dict(handler.headers)))
            self.peers.append(handler.connection.getpeercert() if self.tls else None)
            self.tries.append(Request(body))
            answer = self.answers.popleft() if self.answers else (200, {}, b'', 0)
            if not isinstance(answer, bytes) and answer[0] == 200 and not answer[3]:
                self.accepted.append(self.tries[-1])
        handler.close_connection = True
        try:
            if isinstance(answer, bytes):
                handler.wfile.write(answer)
                return
            status, headers, text, seconds = answer
            if seconds:
                threading.Event().wait(seconds)
            handler.send_response(status)
            for name, value in {**headers, 'Content-Length': str(len(text))}.items():
                handler.send_header(name, value)
            handler.end_headers()
            handler.wfile.write(text)
        except OSError:  # the client did not wait
            pass
