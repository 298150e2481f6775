# SPDX-License-Identifier: Apache-2.0
"""Collects every recorded operation of a job out of the rings of recent completions while the job runs."""
import os
import pathlib
import struct
import threading

from typing import NamedTuple

from documented_segment import DocumentedSegment

# A ring has 512 entries. Jobs here complete ten thousand operations a second, and times that were held back come at once.
POLL_SECONDS = 0.002
# A job with so few operations that no ring is overwritten, and with many rings.
SLOW_POLL_SECONDS = 0.05
# A job takes all cores; a ring that is read late is overwritten.
NICENESS = -10


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


def copy_of_ring(segment, slot):
    offset, size = segment.document.layouts['CommunicatorSlot']['completions']
    return os.pread(segment.file, size, segment.first_slot + slot * segment.slot_bytes + offset)


def completions_in(ring, segment, slot):
    """Entries of `ring`, a copy, that were not written while it was taken: a second copy has the same."""
    second = copy_of_ring(segment, slot)
    entry = struct.Struct(f'<{len(segment.document.layouts["CompletionEntry"])}Q')
    for copied, again in zip(entry.iter_unpack(ring), entry.iter_unpack(second)):
        ticket, what, *rest = copied
        if ticket != 0 and copied == again:
            yield Completion(ticket, segment.document.codes['Function'][what >> 56], what & (1 << 56) - 1, *rest)


class CompletionPoller:
    """`completions`: (segment, slot, generation) -> ticket -> Completion. A thread of its own from start() to stop()."""

    def __init__(self, document, directory, seconds=POLL_SECONDS):
        self.document, self.directory, self.seconds = document, pathlib.Path(directory), seconds
        self.completions, self.communicators = {}, {}
        self.segments, self.rings = {}, {}
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.poll_until_over, daemon=True)

    def start(self):
        self.thread.start()

    def stop(self):
        """To be called when the job's processes have ended: reads all once more."""
        self.is_over.set()
        self.thread.join()
        self.poll()
        for segment in self.segments.values():
            for slot, generation in segment.live_slots():
                self.communicators[segment.name, slot, generation] = segment.communicator(slot, generation)
            segment.close()

    def poll_until_over(self):
        try:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
        except PermissionError:
            pass  # the operations that are missed are counted
        while not self.is_over.wait(self.seconds):
            self.poll()

    def poll(self):
        for path in self.directory.glob('*.seg'):
            if path.name not in self.segments:
                self.open(path)
        for segment in self.segments.values():
            for slot, generation in segment.live_slots():
                self.read(segment, slot, generation)

    def open(self, path):
        try:
            segment = DocumentedSegment(self.document, path)
        except (OSError, struct.error):
            return  # still being made, or gone
        if segment.is_ready:
            self.segments[path.name] = segment
        else:
            segment.close()

    def read(self, segment, slot, generation):
        key = segment.name, slot, generation
        ring = copy_of_ring(segment, slot)
        if self.rings.get(key) == ring:
            return
        self.rings[key] = ring
        known = self.completions.setdefault(key, {})
        for completion in completions_in(ring, segment, slot):
            known.setdefault(completion.ticket, completion)

    def missed(self, key):
        """Operations that were recorded and overwritten before they were read."""
        known = self.completions.get(key, {})
        return max(known, default=0) - len(known)
