# SPDX-License-Identifier: Apache-2.0
"""Reader of segments that knows only the tables of proto/README.md: a second opinion beside the collector's reader."""
import os
import re
import struct
from typing import NamedTuple

WORD = struct.Struct('<Q')


class Document:
    """Tables below headings like "### Header (`SegmentHeader`)": layouts (field -> offset, bytes) and codes (number -> name)."""

    def __init__(self, text):
        self.layouts, self.codes = {}, {}
        for heading, section in re.findall(r'^### .*\(`(\w+)`\)\n((?:(?!#).*\n)*)', text, re.M):
            fields = re.findall(r'^\| (\d+) \| (\d+) \| `([\w.]+)` \|$', section, re.M)
            self.layouts[heading] = {field: (int(offset), int(size)) for offset, size, field in fields}
            self.codes[heading] = {int(code): name for code, name in re.findall(r'^\| (\d+) \| `(\w+)` \|', section, re.M)}

    def words(self, data, layout, field, base=0):
        offset, size = self.layouts[layout][field]
        return struct.unpack_from(f'<{size // WORD.size}Q', data, base + offset)

    def word(self, data, layout, field, base=0):
        return self.words(data, layout, field, base)[0]

    def text(self, data, layout, field):
        offset, size = self.layouts[layout][field]
        return data[offset:offset + size].split(b'\0')[0].decode()


class Communicator(NamedTuple):
    slot: int
    generation: int
    id: int
    rank: int
    ranks: int
    nodes: int
    event_mask: int
    timed: dict  # function -> (operations, bytes, busy_ns)
    calls: dict = {}  # function -> calls
    started: dict = {}  # (function, least bytes of the size class) -> (operations, bytes)
    name: str = ''
    timing: tuple = ()  # source, reason


class DocumentedSegment:
    """One file. Raises OSError or struct.error where it is gone or shorter than its header says."""

    def __init__(self, document, path):
        self.document, self.name = document, os.path.basename(path)
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        header = os.pread(self.file, sum(document.layouts['SegmentHeader']['identity']), 0)
        self.is_ready = len(header) > 0 and document.word(header, 'SegmentHeader', 'version') != 0
        if self.is_ready:
            self.first_slot, self.slot_bytes, self.slots = (
                document.word(header, 'SegmentHeader', field) for field in ('header_bytes', 'slot_bytes', 'slot_count'))

    def close(self):
        os.close(self.file)

    def losses(self):
        counts = self.document.words(os.pread(self.file, self.first_slot, 0), 'SegmentHeader', 'losses')
        return {name: counts[code] for code, name in self.document.codes['Loss'].items() if counts[code]}

    def live_slots(self):
        """(slot, generation) of the communicators with a slot of their own: behind a free slot is no other."""
        for slot in range(self.slots - 1):
            word = WORD.unpack(os.pread(self.file, WORD.size, self.first_slot + slot * self.slot_bytes))[0]
            state = self.document.codes['SlotState'][word & 0xff]
            if state == 'free':
                return
            if state != 'claimed':
                yield slot, word >> 8

    def communicator(self, slot, generation):
        document, codes = self.document, self.document.codes
        data = os.pread(self.file, self.slot_bytes, self.first_slot + slot * self.slot_bytes)
        first, size = document.layouts['CommunicatorSlot']['functions']
        calls, started, timed = {}, {}, {}
        for code, function in codes['Function'].items():
            def counts(field):
                return document.words(data, 'FunctionBlock', field, first + code * (size // len(codes['Function'])))
            calls[function] = counts('calls')[0]
            by_size = list(zip(counts('started.operations'), counts('started.bytes')))
            started.update({(function, int(least)): by_size[index] for index, least in codes['SizeClass'].items() if any(by_size[index])})
            timed[function] = tuple(sum(counts(f'timed.{field}')) for field in ('timed_operations', 'timed_bytes', 'busy_ns'))
        identity = [document.word(data, 'CommunicatorSlot', field) for field in ('communicator_id', 'rank', 'ranks', 'nodes', 'event_mask')]
        source, reason = (document.word(data, 'CommunicatorSlot', field) for field in ('timing_source', 'timing_reason'))
        return Communicator(
            slot, generation, *identity, {function: sums for function, sums in timed.items() if sums[0]},
            {function: count for function, count in calls.items() if count}, started, document.text(data, 'CommunicatorSlot', 'name'),
            (codes['TimingSource'][source], codes['TimingReason'][reason]))
