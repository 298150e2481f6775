#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs with more communicators than there is room for, with the real plugin and daemon: nothing is found that is not there, what
lacks room is counted, and below the limit each live communicator is followed."""
import pathlib
import re
import sys
import time

sys.path[:0] = [str(pathlib.Path(path).resolve()) for path in ('deploy/tests', 'tests/system')]
import report
from one_daemon import OneDaemon

SLOTS_OF_A_PROCESS = 256  # NCCL_EXPORTER_COMMUNICATORS
# Hangs are found after six seconds, and missing ranks: what is not found in a longer time is not there.
TIME_SCALE = 20
LIFE_SECONDS = 7


class ManyCommunicators(OneDaemon):
    def setUp(self):
        super().setUp()
        self.start_daemon(f'--findings.time-scale={TIME_SCALE}')
        self.limit = self.samples('nccl_exporter_limit', limit='communicators')[0]

    def start_job_of(self, ranks, communicators, *options):
        # A step for each of them, and as many as last longer than the test looks.
        self.start_job('--layout', f'many-{communicators}', '--ranks-per-node', str(ranks), '--rate', '100', *options)

    def unread(self):
        return self.samples('nccl_exporter_unread_communicators', state='in_use')

    def finds_nothing_else(self, found, unread):
        """Whether `found` is all that is found for LIFE_SECONDS from now."""
        end = time.monotonic() + LIFE_SECONDS
        while time.monotonic() < end:
            alarms = self.alarms()
            self.assertEqual(self.unread(), unread)
            if [alarm['kind'] for alarm in alarms] != found or [alarm for alarm in alarms if 'no room for' not in alarm['headline']]:
                return False
            time.sleep(0.5)
        return True

    def expect_no_false_finding(self, processes, live):
        """`live`: communicators that have slots. Where they are too many, that is all that is found."""
        unread = [max(0, live - self.limit)]
        self.eventually(lambda: self.samples('nccl_exporter_segments', state='live') == [processes])
        self.eventually(lambda: self.unread() == unread)
        # On a busy machine a rank is seconds behind the others in a step of thousands of communicators, which is found and is true for
        # a moment. What lacks room lacks it for the job's life: a finding that came of it would never end.
        found = ['segments_unusable'] if unread[0] else []
        self.eventually(lambda: self.finds_nothing_else(found, unread))
        self.assertEqual(set(self.samples('nccl_process_halted')), {0})
        errors = re.findall(r'nccl_exporter_segment_errors_total\{reason="(\w+)"\} [1-9]', self.get('/metrics'))
        self.assertEqual(errors, ['too_many_segments'] if unread[0] else [])

    def test_sixteen_ranks_of_three_hundred(self):
        self.start_job_of(16, 300)
        self.expect_no_false_finding(16, 16 * (SLOTS_OF_A_PROCESS + 1))
        self.assertEqual(self.samples('nccl_process_operations_unfollowed_total'), [300 - SLOTS_OF_A_PROCESS] * 16)

    def test_eight_ranks_of_2500(self):
        self.start_job_of(8, 2500, '--env', 'NCCL_EXPORTER_COMMUNICATORS=4095')
        self.expect_no_false_finding(8, 8 * 2500)

    def test_two_jobs_of_eight_ranks_of_two_hundred(self):
        for job in '4712', '4713':
            self.start_job_of(8, 200, '--slurm-job-id', job)
        self.expect_no_false_finding(16, 2 * 8 * 200)

    def test_each_is_followed_below_the_limit(self):
        self.start_job_of(8, 300)
        self.assertLess(8 * 300, self.limit)
        self.expect_no_false_finding(8, 8 * (SLOTS_OF_A_PROCESS + 1))


if __name__ == '__main__':
    report.main()
