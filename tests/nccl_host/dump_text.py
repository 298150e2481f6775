# SPDX-License-Identifier: Apache-2.0
"""Reads what `nccl-exporter dump` prints: the daemon's own view of a segment."""
import collections
import dataclasses
import re


@dataclasses.dataclass
class DumpedCommunicator:
    id: int = 0
    name: str = ''
    rank: int = 0
    timing_source: str = ''
    timing_reason: str = ''
    calls: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    operations: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # (function, size class)
    bytes: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    timed: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # by function


@dataclasses.dataclass
class Dump:
    pid: int = 0
    losses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    communicators: list = dataclasses.field(default_factory=list)


def parse_dump(text):
    dump = Dump()
    communicator, function, is_losses = None, None, False
    for line in text.splitlines():
        if found := re.match(r'process (\d+) ', line):
            dump.pid = int(found[1])
        elif found := re.match(r'communicator ([0-9a-f]{16}) ', line):
            communicator = DumpedCommunicator(id=int(found[1], 16))
            dump.communicators.append(communicator)
        elif line == 'losses':
            is_losses = True
        elif is_losses and (found := re.match(r'  (\w+): (\d+) \(', line)):
            dump.losses[found[1]] = int(found[2])
        elif communicator is not None:
            is_losses = False
            function = parse_line_of_communicator(line, communicator, function)
    return dump


def parse_line_of_communicator(line, communicator, function):
    """Returns the function whose lines follow."""
    if found := re.search(r'timing source (\w+) \((\w+)\)', line):
        communicator.timing_source, communicator.timing_reason = found.groups()
    elif found := re.match(r'  name "(.*)", rank (\d+), ', line):
        communicator.name, communicator.rank = found[1], int(found[2])
    elif found := re.match(r'  (\w+): (\d+) calls, ', line):
        communicator.calls[found[1]] += int(found[2])
        return found[1]
    elif found := re.match(r'    from (\d+) bytes: (\d+) operations, (\d+) bytes; timed: (\d+) operations', line):
        key = function, int(found[1])
        communicator.operations[key] += int(found[2])
        communicator.bytes[key] += int(found[3])
        communicator.timed[function] += int(found[4])
    return function
