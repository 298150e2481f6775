# SPDX-License-Identifier: Apache-2.0
"""Samples as a request of Prometheus remote write 1.0: protobuf within snappy, of which the form without compression is enough."""
import struct

STALE = struct.pack('<Q', 0x7ff0000000000002)  # the value that ends a series
BATCH_BYTES = 4 << 20  # well below the limits of the receivers
LITERAL_BYTES = 1 << 16  # of one element of snappy
HEADERS = {'Content-Encoding': 'snappy', 'Content-Type': 'application/x-protobuf', 'X-Prometheus-Remote-Write-Version': '0.1.0'}


def varint(number):
    out = bytearray()
    while number > 0x7f:
        out.append(number & 0x7f | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def labels_of(labels):
    """Encoded labels; receivers want them sorted by name, and none that is empty."""
    return b''.join(field(1, field(1, name.encode()) + field(2, str(value).encode())) for name, value in sorted(labels.items()) if value != '')


def sample_of(moment_ms, value):
    """Encoded sample; a value of None ends the series."""
    return field(2, b'\x09' + (STALE if value is None else struct.pack('<d', value)) + b'\x10' + varint(moment_ms))


def snappy(content):
    out = [varint(len(content))]
    for begin in range(0, len(content), LITERAL_BYTES):
        literal = content[begin:begin + LITERAL_BYTES]
        out += [b'\xf4', struct.pack('<H', len(literal) - 1), literal]
    return b''.join(out)


def requests_of(series):
    """Bodies of requests, for pairs of encoded labels and encoded samples."""
    batch, size = [], 0
    for labels, samples in series:
        batch.append(field(1, labels + samples))
        size += len(batch[-1])
        if size > BATCH_BYTES:
            yield snappy(b''.join(batch))
            batch, size = [], 0
    if batch:
        yield snappy(b''.join(batch))
