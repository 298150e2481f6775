# SPDX-License-Identifier: Apache-2.0
"""Processes and communicators of a directory of segments, as the collector reads them (segments_as_json)."""
import collections
import dataclasses
import json
import subprocess


@dataclasses.dataclass
class RecordedCommunicator:
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
class RecordedProcess:
    pid: int = 0
    losses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    communicators: list = dataclasses.field(default_factory=list)


def read_segments(reader, directory):
    """RecordedProcess by name of its file; `reader` is the program."""
    text = subprocess.run([reader, directory], check=True, capture_output=True, text=True).stdout
    return {name: RecordedProcess(process['pid'], collections.Counter(process['losses']), [*map(communicator_of, process['communicators'])])
            for name, process in json.loads(text).items()}


def communicator_of(fields):
    functions = fields.pop('functions')
    communicator = RecordedCommunicator(**fields)
    for name, function in functions.items():
        communicator.calls[name] = function['calls']
        communicator.timed[name] = function['timed']
        for least, size in function['sizes'].items():
            communicator.operations[name, int(least)] = size['operations']
            communicator.bytes[name, int(least)] = size['bytes']
    return communicator
