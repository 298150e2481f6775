#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Models of what threads of the plugin write and others or the collector read, on a machine that reorders like Armv8.

Every execution is tried. Another core sees a thread's accesses in any order that keeps these: two
accesses to the same word stay in order, a release comes after all accesses before it, an acquire
or a fence before all loads after it, and a store becomes visible to all cores at once (Armv8 is
multi-copy atomic). An atomic change reads and writes in one step. A copy of the collector is a set
of plain loads between two fences.

Each model is tried as the code has it, where no execution may be wrong, and without each of its
orders, where an execution must be: so each order is needed, and the model can fail.
"""
import sys
import unittest

sys.path.insert(0, 'deploy/tests')
import report


def store(word, value, release=False):
    return ("store", word, value, release)


def load(register, word, acquire=False):
    return ("load", word, register, acquire)


def change(register, word, to, acquire=False, release=False):
    """An atomic read and write. `to`: the new value, of the old one and the thread's registers."""
    return ("change", word, (register, to), (acquire, release))


FENCE = ("fence", None, None, False)


def is_acquire(access):
    return access[0] == "load" and access[3] or access[0] == "change" and access[3][0]


def is_release(access):
    return access[0] == "store" and access[3] or access[0] == "change" and access[3][1]


def keeps_order(earlier, later):
    if earlier[0] == "fence" or later[0] == "fence":
        return True
    return earlier[1] == later[1] or is_release(later) or is_acquire(earlier)


def before(thread):
    """For each access the set of those that come before it, as bits."""
    return [sum(1 << i for i in range(j) if keeps_order(thread[i], thread[j])) for j in range(len(thread))]


def outcomes(memory, *threads):
    """All possible contents of the threads' registers and of the memory's words when all threads are done."""
    orders = [before(thread) for thread in threads]
    start = (*[0] * len(threads), tuple(sorted(memory.items())), ())
    seen, pending, ends = {start}, [start], []
    while pending:
        state = pending.pop()
        done, words, registers = state[:-2], dict(state[-2]), dict(state[-1])
        if all(bits == (1 << len(thread)) - 1 for bits, thread in zip(done, threads)):
            ends.append({**words, **registers, "memory": words})
            continue
        for which, thread in enumerate(threads):
            for i, (kind, word, value, _) in enumerate(thread):
                if done[which] >> i & 1 or orders[which][i] & ~done[which]:
                    continue
                new_words, new_registers, new_done = dict(words), dict(registers), list(done)
                new_done[which] |= 1 << i
                if kind == "store":
                    new_words[word] = value
                elif kind == "load":
                    new_registers[value] = words[word]
                elif kind == "change":
                    new_registers[value[0]] = words[word]
                    new_words[word] = value[1](words[word], registers)
                new = (*new_done, tuple(sorted(new_words.items())), tuple(sorted(new_registers.items())))
                if new not in seen:
                    seen.add(new)
                    pending.append(new)
    return ends


def entry(number, fields_release, ticket_release):
    """The entry is given back, and used again: HideInFlight and ShowInFlight, or AppendCompletion."""
    return [store("ticket", 0), store("a", number, fields_release), store("b", number, fields_release),
            store("ticket", number, ticket_release)]


class Model:
    """is_wrong() says whether any execution is; each of `orders` can be taken from it."""
    orders = ()

    def test_no_execution_is_wrong(self):
        self.assertFalse(self.is_wrong())

    def test_every_order_is_needed(self):
        for order in self.orders:
            with self.subTest(order):
                self.assertTrue(self.is_wrong(**{order: False}))


class InFlight(Model, unittest.TestCase):
    """plugin/segment/recorder.h, ShowInFlight; collector/reader/segment_reader.cc, DropChangedEntries."""
    orders = ('fields_release', 'ticket_release', 'first', 'second')

    def is_wrong(self, fields_release=True, ticket_release=True, first=FENCE, second=FENCE):
        writer = entry(2, fields_release, ticket_release) + entry(3, fields_release, ticket_release)
        reader = [load("before", "ticket"), first, load("a", "a"), load("b", "b"), second, load("after", "ticket")]
        reader = [access for access in reader if access]
        return any(end["before"] == end["after"] != 0 and {end["a"], end["b"]} != {end["before"]}
                   for end in outcomes({"ticket": 1, "a": 1, "b": 1}, writer, reader))


class Completions(Model, unittest.TestCase):
    """plugin/segment/recorder.h, AppendCompletion; collector/arrivals/completion_ring.cc: two equal copies."""
    orders = ('fields_release', 'ticket_release', 'fence')

    def is_wrong(self, fields_release=True, ticket_release=True, fence=FENCE):
        writer = entry(2, fields_release, ticket_release) + entry(3, fields_release, ticket_release)
        words = ("ticket", "a", "b")
        reader = [load("first " + word, word) for word in words]
        reader += [fence] if fence else []
        reader += [load("second " + word, word) for word in words]
        return any(end["first ticket"] != 0 and all(end["first " + word] == end["second " + word] for word in words) and
                   {end["first a"], end["first b"]} != {end["first ticket"]}
                   for end in outcomes({"ticket": 1, "a": 1, "b": 1}, writer, reader))


class Slots(Model, unittest.TestCase):
    """plugin/segment/segment.cc, Reserve; plugin/process.cc, OpenSlot; segment_reader.cc, CopySlot.

    The state is 1 for the first live communicator, 20 where the slot is claimed, 2 for the next one.
    """
    orders = ('zeros_release', 'live_release', 'reads_before', 'fence')

    def is_wrong(self, zeros_release=True, live_release=True, reads_before=True, fence=FENCE):
        writer = [store("state", 20), store("a", 0, zeros_release), store("b", 0, zeros_release),
                  store("a", 2), store("b", 2), store("state", 2, live_release)]
        reader = [load("before", "state"), fence] if reads_before else []
        reader += [load("state", "state"), load("a", "a"), load("b", "b"), fence, load("after", "state")]
        reader = [access for access in reader if access]
        return any(end.get("before", end["state"]) == end["state"] == end["after"] != 20 and
                   {end["a"], end["b"]} != {end["state"]}
                   for end in outcomes({"state": 1, "a": 1, "b": 1}, writer, reader))


class Segments(Model, unittest.TestCase):
    """plugin/segment/segment.cc, Publish; collector/reader/slot_directory.cc, ReadHeader."""
    orders = ('release', 'fence')

    def is_wrong(self, release=True, fence=FENCE):
        writer = [store("a", 1), store("b", 1), store("version", 1, release)]
        reader = [access for access in (load("version", "version"), fence, load("a", "a"), load("b", "b")) if access]
        return any(end["version"] == 1 and {end["a"], end["b"]} != {1}
                   for end in outcomes({"version": 0, "a": 0, "b": 0}, writer, reader))


class Parts(Model, unittest.TestCase):
    """plugin/operations/part_tracker.h; operation.h, ProgressOf: by a thread that does not report the parts.

    The entry had an operation with one channel. The next has two, which start before either stops.
    """
    orders = ('begin_release', 'stop_release', 'ticket_acquire', 'stopped_acquire', 'stopped_first')

    def is_wrong(self, begin_release=True, stop_release=True, ticket_acquire=True, stopped_acquire=True, stopped_first=True):
        reports = [store("seen", 0), store("stopped", 0), store("stop_ns", 0), store("ticket", 2, begin_release),
                   store("seen", 1), store("seen", 3),
                   store("stopped", 1, stop_release), store("stop_ns", 2), store("stopped", 3, stop_release)]
        progress = [load("has stopped", "stopped", stopped_acquire), load("has seen", "seen")]
        if not stopped_first:
            progress = [load("has seen", "seen", True), load("has stopped", "stopped", True)]
        ends_it = [load("of", "ticket", ticket_acquire), *progress, load("time", "stop_ns")]
        return any(end["of"] == 2 and end["has seen"] == end["has stopped"] != 0 and end["time"] != 2
                   for end in outcomes({"ticket": 1, "seen": 1, "stopped": 1, "stop_ns": 1}, reports, ends_it))


class Sweep(Model, unittest.TestCase):
    """plugin/operations/operation_completer.h: an operation that was started before one that was reported is not passed over."""
    orders = ('start_release', 'report_release', 'sweep_acquire')

    def is_wrong(self, start_release=True, report_release=True, sweep_acquire=True):
        starts = [store("first", 1), store("second", 1, start_release)]
        reports = [load("reported", "second"), store("latest", 2, report_release)]
        sweeps = [load("until", "latest", sweep_acquire), load("state", "first")]
        return any(end["reported"] == 1 and end["until"] == 2 and end["state"] == 0
                   for end in outcomes({"first": 0, "second": 0, "latest": 0}, starts, reports, sweeps))


class Unfollowed(Model, unittest.TestCase):
    """plugin/operations/launch_recorder.cc, NoteUnfollowed and CompleteUnfollowed: operations that are not followed are over once.

    One is noted, until ticket 10. Then one more is, until the same ticket or until 20, while those until 10 are completed.
    """
    orders = ('noted_acquire', 'taken_release', 'compares')

    def is_wrong(self, noted_acquire=True, taken_release=True, compares=True):
        completes = [change("until", "until", lambda until, _: until if compares and until != 10 else 0),
                     change("taken", "count", lambda count, got: count if compares and got.get("until", 10) != 10 else 0,
                            release=taken_release)]
        for ticket in 10, 20:
            notes = [change("noted", "count", lambda count, _: count + 1, acquire=noted_acquire),
                     change("raised", "until", lambda until, _: max(until, ticket))]
            for end in outcomes({"until": 10, "count": 1}, notes, completes):
                left_behind = end["memory"]["count"] != 0 and end["memory"]["until"] == 0
                over_too_early = end["until"] == 20 and end["memory"]["count"] == 0
                if left_behind or over_too_early:
                    return True
        return False


class SizeHistograms(Model, unittest.TestCase):
    """plugin/segment/recorder.cc, TakeSizeHistogram; segment_reader.cc, CopySizeHistograms: what is timed has its histogram."""
    orders = ('fence_after_owner', 'fence_between_copies')

    def is_wrong(self, fence_after_owner=FENCE, fence_between_copies=FENCE):
        writer = [store("owner", 1, True), fence_after_owner, store("timed", 1)]
        reader = [load("timed", "timed"), fence_between_copies, load("owner", "owner")]
        writer, reader = ([access for access in thread if access] for thread in (writer, reader))
        return any(end["timed"] == 1 and end["owner"] == 0
                   for end in outcomes({"timed": 0, "owner": 0}, writer, reader))


class WorkItemTimes(Model, unittest.TestCase):
    """plugin/timing/work_items.h, 2 to 4: a time that is read is not of a later item. Here two times are kept, and item 0 is asked for."""
    orders = ('time_release', 'count_release', 'count_acquire', 'time_acquire')

    def is_wrong(self, time_release=True, count_release=True, count_acquire=True, time_acquire=True):
        notes = [store("even", 10, time_release), store("count", 1, count_release), store("odd", 11, time_release),
                 store("count", 2, count_release), store("even", 12, time_release), store("count", 3, count_release)]
        reads = [load("before", "count", count_acquire), load("time", "even", time_acquire), load("after", "count")]
        return any(end["before"] >= 1 and end["after"] < 2 and end["time"] != 10
                   for end in outcomes({"count": 0, "even": 0, "odd": 0}, notes, reads))


if __name__ == "__main__":
    report.main()
