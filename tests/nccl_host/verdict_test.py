#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Verdicts of the judge on made up jobs; and the poller's records against the collector's reader."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
from collections import Counter

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report
from completion_poller import Completion, CompletionPoller
from documented_segment import Communicator, Document
from job_table import Job
from kernel_truth import load_truth, parts_with_data
from recorded_segments import RecordedCommunicator, RecordedProcess, read_segments
from verdict import judge

READER, PLUGIN, SIMULATOR = (os.path.abspath(path) for path in
    ('tests/nccl_host/segments_as_json', 'plugin/libnccl-profiler-exporter.so', 'simulator/nccl-sim'))
KERNEL_NS, GAP_NS, GPU_AHEAD_NS, EPILOGUE_NS = 100_000, 20_000, 7_000_000, 500
PID, COMMUNICATOR_ID, KERNEL_EVENTS = 7, 0xabc, 64
OPERATION_BYTES = 65536
NCCL_2_28, NCCL_2_30 = 22809, 23007


def recorded_process(source, reason, count):
    """As many AllReduces, and a loss."""
    key = 'AllReduce', OPERATION_BYTES
    communicator = RecordedCommunicator(COMMUNICATOR_ID, '', 0, source, reason, Counter({'AllReduce': count}), Counter({key: count}),
                                        Counter({key: count * OPERATION_BYTES}), Counter({'AllReduce': count}))
    return RecordedProcess(PID, Counter({'ring_overrun': 3}), [communicator])


def truth_line(number, **changes):
    """The number-th kernel: one AllReduce."""
    start = number * (KERNEL_NS + GAP_NS)
    return {'dev': 0, 'k': number, 'comm': hex(COMMUNICATOR_ID), 'rank': 0, 'submit': start - GAP_NS // 2, 'start': start,
            'gt_start': start + GPU_AHEAD_NS, 'gt_end': start + GPU_AHEAD_NS + KERNEL_NS + EPILOGUE_NS, 'replay': False, 'p2p_ops': [],
            'ops': [{'func': 'AllReduce'}], **changes}


def completion(number, shift_ns=0, longer_ns=0, function='AllReduce', members=1):
    start = number * (KERNEL_NS + GAP_NS) + GPU_AHEAD_NS + shift_ns
    call_ns = number * (KERNEL_NS + GAP_NS) - GAP_NS
    return Completion(number + 1, function, number, call_ns, start, start + KERNEL_NS + longer_ns, 0, OPERATION_BYTES, members)


class Judge(unittest.TestCase):
    def faults(self, completions, lines=None, job=Job('made-up', ''), version=NCCL_2_28, hung=False, status=0, account=None, source='kernel',
               reason='configured', mask=KERNEL_EVENTS, missed=0, watch=None, **account_of_causes):
        count = len(completions)
        with tempfile.TemporaryDirectory() as scratch:
            lines = [truth_line(number) for number in range(count)] if lines is None else lines
            pathlib.Path(scratch, 'truth.7.jsonl').write_text(''.join(json.dumps(line) + '\n' for line in lines), encoding='utf-8')
            truth = load_truth(f'{scratch}/truth')
        key = 'a.seg', 0, 1
        sums = {}
        for each in completions:
            operations, sizes, busy = sums.get(each.function, (0, 0, 0))
            sums[each.function] = operations + 1, sizes + each.bytes, busy + each.stop_ns - each.start_ns
        poller = types.SimpleNamespace(
            communicators={key: Communicator(0, 1, COMMUNICATOR_ID, 0, 2, 1, mask, sums)},
            completions={key: {each.ticket: each for each in completions}}, missed=lambda _: missed)
        account = account or {'calls': {'AllReduce': count}, 'operations': [['AllReduce', OPERATION_BYTES, count]]}
        account = {'replayed': [], 'several_roots_in_one_group': 0, 'replays_after_eager_call': 0, 'unfinished': 0, **account,
                   **account_of_causes}
        process = recorded_process(source, reason, count)
        played = types.SimpleNamespace(job=job, rig=types.SimpleNamespace(version=version), is_hung=hung, status=status, output='', truth=truth,
                                       processes={PID: process}, accounts={PID: account}, poller=poller, watch=watch)
        return judge(played).faults

    def expect_fault(self, words, *arguments, **options):
        faults = self.faults(*arguments, **options)
        self.assertTrue(any(words in fault for fault in faults), faults)

    def test_accepts_times_of_the_operations_own_kernels(self):
        self.assertEqual(self.faults([completion(number) for number in range(4)]), [])

    def test_accepts_a_duration_within_two_thousandths(self):
        self.assertEqual(self.faults([completion(0, longer_ns=-150)]), [])

    def test_names_a_hang_and_a_failure(self):
        self.expect_fault('hang', [completion(0)], hung=True)
        self.expect_fault('exit 3', [completion(0)], status=3)

    def test_names_times_of_another_kernel(self):
        self.expect_fault('its kernel is 1, its times are those of kernel 3', [completion(0), completion(1, shift_ns=2 * (KERNEL_NS + GAP_NS)),
                                                                            completion(2), completion(3)])

    def test_names_times_of_another_kernel_of_sends_by_their_call(self):
        lines = [truth_line(number, ops=[], p2p_ops=[['Send', 1, OPERATION_BYTES, 1]]) for number in range(3)]
        account = {'calls': {'AllReduce': 3}, 'operations': [['AllReduce', OPERATION_BYTES, 3]]}
        sends = [completion(number, function='Send') for number in range(3)]
        self.assertEqual(self.faults(sends, lines, account=account), [])
        sends[0] = completion(0, shift_ns=KERNEL_NS + GAP_NS, function='Send')
        self.expect_fault('its kernel is 0, its times are those of kernel 1', sends, lines, account=account)

    def test_names_a_duration_that_is_not_its_kernels(self):
        self.expect_fault('took 99600 ns, its kernel 100000 ns', [completion(0, longer_ns=-400)])

    def test_names_a_rank_that_is_busy_for_longer_than_its_kernels_run(self):
        self.expect_fault('collectives: busy for 320000 ns, and the kernels of all are 220500 ns',
                          [completion(number, longer_ns=3 * GAP_NS) for number in range(2)])

    def test_names_an_operation_that_no_device_ran(self):
        self.expect_fault('no kernel of the device', [completion(0), completion(1)], lines=[truth_line(0)])

    def test_names_counts_that_differ(self):
        self.expect_fault('AllReduce: 2 calls, 1 recorded', [completion(0)],
                          account={'calls': {'AllReduce': 2}, 'operations': [['AllReduce', OPERATION_BYTES, 1]]})
        self.expect_fault('AllReduce from 4096 bytes: 1 operations, 0 recorded', [completion(0)],
                          account={'calls': {'AllReduce': 1}, 'operations': [['AllReduce', 4096, 1], ['AllReduce', OPERATION_BYTES, 1]]})

    def test_expects_no_broadcasts_to_be_announced_where_nccl_joins_them(self):
        account = {'calls': {'AllReduce': 1}, 'operations': [['AllReduce', OPERATION_BYTES, 1], ['Broadcast', 4096, 5]]}
        self.assertEqual(self.faults([completion(0)], version=NCCL_2_30, mask=0, account=account, source='none'), [])
        self.expect_fault('Broadcast from 4096 bytes: 5 operations, 0 recorded', [completion(0)], account=account)

    def test_expects_no_replays_to_be_announced_without_kernel_events(self):
        account = {'calls': {'AllReduce': 1}, 'operations': [['AllReduce', OPERATION_BYTES, 4], ['Broadcast', 4096, 5]],
                   'replayed': [['AllReduce', OPERATION_BYTES, 3], ['Broadcast', 4096, 5]]}
        self.assertEqual(self.faults([completion(0)], version=NCCL_2_30, mask=0, account=account, source='none'), [])
        self.expect_fault('AllReduce from 65536 bytes: 4 operations, 1 recorded', [completion(0)], account=account)

    def test_names_drift_that_has_no_cause(self):
        self.expect_fault('drift without a cause: ring_overrun 3', [completion(0)], source='none', reason='drift')
        drawn = Job('made-up', '', is_drawn=True)
        self.assertEqual(self.faults([completion(0)], source='none', reason='drift', job=drawn, replays_after_eager_call=1), [])
        self.expect_fault('drift without a cause', [completion(0)], source='none', reason='drift', job=drawn, several_roots_in_one_group=1)

    def test_names_kernel_events_where_they_can_hang_a_job(self):
        self.expect_fault('kernel events are asked for', [completion(0)], version=NCCL_2_30)
        self.assertEqual(self.faults([completion(0)], version=NCCL_2_30, job=Job('made-up', '', {'NCCL_ALLGATHERV_ENABLE': '0'})), [])

    def test_names_kernel_events_that_are_not_asked_for(self):
        self.expect_fault('no kernel events are asked for', [completion(0)], mask=0)

    def test_names_operations_that_are_timed_against_the_setting(self):
        self.expect_fault('1 operations are timed', [completion(0)], job=Job('made-up', '', never_timed=True))

    def test_names_operations_that_are_timed_and_cannot_have_ended(self):
        self.assertEqual(self.faults([completion(0), completion(1)]), [])
        self.expect_fault('1 operations can have ended, 2 are timed', [completion(0), completion(1)], unfinished=1)

    def test_names_critical_findings_of_a_job_that_goes_on(self):
        watch = types.SimpleNamespace(url='', answers=9, findings=Counter({('info', 'abandoned', 'gone'): 5}))
        self.assertEqual(self.faults([completion(0)], watch=watch), [])
        watch.findings['critical', 'hang_culprit', 'waits'] = 2
        self.expect_fault('finding hang_culprit in 2 of 9 answers: waits', [completion(0)], watch=watch)

    def test_names_a_daemon_that_does_not_answer(self):
        watch = types.SimpleNamespace(url='', answers=0, findings=Counter())
        self.expect_fault('the daemon did not answer', [completion(0)], watch=watch)

    def test_names_a_job_that_is_not_what_the_table_says(self):
        self.expect_fault("made with the causes ['roots'] of drift, and has []", [completion(0)], job=Job('made-up', '', causes=('roots',)))


class Parts(unittest.TestCase):
    def test_counts_the_parts_of_a_message_that_have_data(self):
        self.assertEqual([parts_with_data(size, 4) for size in (0, 1, 4096, 4097, 16384, 20480)], [1, 1, 1, 2, 4, 3])


class PolledCompletions(unittest.TestCase):
    def test_are_as_many_as_the_collector_reads(self):
        document = Document(pathlib.Path('proto/README.md').read_text(encoding='utf-8'))
        with tempfile.TemporaryDirectory() as scratch:
            poller = CompletionPoller(document, scratch)
            poller.start()
            subprocess.run([SIMULATOR, '--plugin', PLUGIN, '--segment-dir', scratch, '--ranks-per-node', '2', '--layout', 'single',
                            '--duration', '1'], check=True, capture_output=True)
            poller.stop()
            timed = {}
            for segment, process in read_segments(READER, scratch).items():
                for communicator in process.communicators:
                    timed[segment, communicator.id] = {function: count for function, count in communicator.timed.items() if count}
        self.assertTrue(timed)
        read = {(segment, communicator.id): {function: sums[0] for function, sums in communicator.timed.items()}
                for (segment, _, _), communicator in poller.communicators.items()}
        self.assertEqual(read, timed)
        for key, communicator in poller.communicators.items():
            recorded = poller.completions[key].values()
            self.assertEqual(len(recorded) + poller.missed(key), sum(sums[0] for sums in communicator.timed.values()))
            self.assertTrue(all(each.start_ns < each.stop_ns and each.members >= 1 for each in recorded))


if __name__ == '__main__':
    report.main()
