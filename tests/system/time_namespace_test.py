#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs in time namespaces of their own, as containers that a checkpoint is restored in: their clock is behind or ahead of the
daemon's. Needs root and namespaces; says so and skips where it has none."""
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest

sys.path[:0] = [str(pathlib.Path(path).resolve()) for path in ('deploy/tests', 'tests/system')]
import report
from one_daemon import OneDaemon

BEHIND_SECONDS, AHEAD_SECONDS = -600, 100_000
LOOK_SECONDS = 8


def namespace(seconds):
    return ['unshare', '--time', '--monotonic', str(seconds), '--fork', '--kill-child']


def what_is_missing():
    """Why this machine cannot set a clock back, or None."""
    if os.geteuid() != 0:
        return 'needs root, for time namespaces'
    if time.clock_gettime(time.CLOCK_MONOTONIC) < 2 * -BEHIND_SECONDS:
        return 'the machine has not been up for long enough'
    probe = subprocess.run([*namespace(BEHIND_SECONDS), 'true'], capture_output=True, text=True)
    return f'no time namespaces here: {probe.stderr.strip()}' if probe.returncode else None


@unittest.skipIf(what_is_missing(), what_is_missing())
class TimeNamespace(OneDaemon):
    def expect_times_of_now(self, offset_seconds):
        self.start_daemon('--findings.time-scale=4')
        self.start_job('--layout', 'dp', '--ranks-per-node', '2', '--rate', '5', '--api-version', '5', '--nccl-version', '22809',
                       '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on', around=namespace(offset_seconds))
        began = time.time()
        self.eventually(lambda: sum(self.samples('nccl_collective_operations_total')) > 20)
        end = time.monotonic() + LOOK_SECONDS
        looks = 0
        while time.monotonic() < end:
            self.assertEqual(self.alarms(), [])
            node = json.loads(self.get('/api/v1/node'))
            times = [rank['last_progress'] for comm in node['communicators'] for rank in comm['local_ranks']]
            times += [operation['start'] for comm in node['communicators'] for rank in comm['local_ranks'] for operation in rank['in_flight']]
            times += self.samples('nccl_operations_oldest_in_flight_start_timestamp_seconds')
            times += [process['start'] for process in node['processes']]
            self.assertTrue(times)
            for moment in times:
                self.assertTrue(began - 5 < moment < time.time() + 5, f'{moment - began:.0f} s after the start of the job')
            looks += 1
            time.sleep(0.2)
        self.assertGreater(looks, 3)
        self.assertEqual(sum(self.samples('nccl_exporter_segment_errors_total')), 0)

    def test_a_clock_that_is_behind(self):
        self.expect_times_of_now(BEHIND_SECONDS)

    def test_a_clock_that_is_ahead(self):
        self.expect_times_of_now(AHEAD_SECONDS)


if __name__ == '__main__':
    report.main()
