# SPDX-License-Identifier: Apache-2.0
"""Reader of segments that knows only the byte tables of proto/README.md: a second opinion beside the collector's reader."""
import os
import re
import struct
from typing import NamedTuple

FUNCTIONS = ('Broadcast', 'Reduce', 'AllGather', 'ReduceScatter', 'AllReduce', 'AlltoAll', 'Gather', 'Scatter', 'Send', 'Recv', 'Other')
STATE_FREE, STATE_CLAIMED, STATE_LIVE, STATE_CLOSED = range(4)
WORD_BYTES = 8
KERNEL_CHANNEL_EVENTS = 64  # bit of NCCL's event mask


class Completion(NamedTuple):
    ticket: int
    function: str
    sequence: int
    call_ns: int
    start_ns: int
    stop_ns: int
    delivered_ns: int
    bytes: int
    members: int


class Communicator(NamedTuple):
    slot: int
    generation: int
    id: int
    rank: int
    ranks: int
    nodes: int
    event_mask: int
    timed: dict  # function -> (operations, bytes, busy_ns)


class Layout:
    """Offsets and sizes by type and field, out of the tables below headings like "### Header (`SegmentHeader`)"."""

    def __init__(self, document):
        self.types = {}
        fields = None
        for line in document.splitlines():
            if heading := re.match(r'#+ .*\(`(\w+)`\)$', line):
                fields = self.types.setdefault(heading[1], {})
            elif line.startswith('#'):
                fields = None
            elif fields is not None and (row := re.match(r'\| (\d+) \| (\d+) \| `([\w.]+)` \|$', line)):
                fields[row[3]] = (int(row[1]), int(row[2]))
        missing = {'SegmentHeader', 'CommunicatorSlot', 'FunctionBlock', 'CompletionEntry'} - self.types.keys()
        if missing:
            raise ValueError(f'the document has no table of {", ".join(sorted(missing))}')
        self.entry_words = sum(self.types['CompletionEntry']['members']) // WORD_BYTES
        self.ring_offset, self.ring_bytes = self.types['CommunicatorSlot']['completions']

    def word(self, data, type_name, field, base=0):
        return struct.unpack_from('<Q', data, base + self.types[type_name][field][0])[0]

    def words(self, data, type_name, field, base=0):
        offset, size = self.types[type_name][field]
        return struct.unpack_from(f'<{size // WORD_BYTES}Q', data, base + offset)


class DocumentedSegment:
    """One file. Raises OSError or struct.error where it is gone or shorter than its header says."""

    def __init__(self, layout, path):
        self.layout = layout
        self.name = os.path.basename(path)
        self.file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        header = os.pread(self.file, sum(layout.types['SegmentHeader']['identity']), 0)
        self.is_ready = len(header) > 0 and layout.word(header, 'SegmentHeader', 'version') != 0
        if self.is_ready:
            self.pid, self.first_slot, self.slot_bytes, self.slots = (
                layout.word(header, 'SegmentHeader', field) for field in ('pid', 'header_bytes', 'slot_bytes', 'slot_count'))

    def close(self):
        os.close(self.file)

    def live_slots(self):
        """(slot, generation) of the communicators with a slot of their own: behind a free slot is no other."""
        for slot in range(self.slots - 1):
            word = struct.unpack('<Q', os.pread(self.file, WORD_BYTES, self.first_slot + slot * self.slot_bytes))[0]
            if word & 0xff == STATE_FREE:
                return
            if word & 0xff != STATE_CLAIMED:
                yield slot, word >> 8

    def communicator(self, slot, generation):
        layout = self.layout
        data = os.pread(self.file, self.slot_bytes, self.first_slot + slot * self.slot_bytes)
        blocks, blocks_bytes = layout.types['CommunicatorSlot']['functions']
        stride = blocks_bytes // len(FUNCTIONS)
        timed = {}
        for number, function in enumerate(FUNCTIONS):
            sums = [sum(layout.words(data, 'FunctionBlock', f'timed.{field}', blocks + number * stride))
                    for field in ('timed_operations', 'timed_bytes', 'busy_ns')]
            if sums[0]:
                timed[function] = tuple(sums)
        identity = (layout.word(data, 'CommunicatorSlot', field) for field in ('communicator_id', 'rank', 'ranks', 'nodes', 'event_mask'))
        return Communicator(slot, generation, *identity, timed)

    def ring(self, slot):
        return os.pread(self.file, self.layout.ring_bytes, self.first_slot + slot * self.slot_bytes + self.layout.ring_offset)

    def completions(self, slot, ring):
        """Entries of `ring`, a copy, that were not written while it was taken: a second copy has the same."""
        count = self.layout.entry_words
        form = f'<{self.layout.ring_bytes // WORD_BYTES}Q'
        words, again = struct.unpack(form, ring), struct.unpack(form, self.ring(slot))
        for at in range(0, len(words), count):
            entry = words[at:at + count]
            if entry[0] != 0 and entry == again[at:at + count]:
                ticket, what, *rest = entry
                yield Completion(ticket, FUNCTIONS[what >> 56], what & (1 << 56) - 1, *rest)
