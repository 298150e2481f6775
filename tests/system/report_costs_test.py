#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""`report costs`, and `report` of a long time, answered by a real Prometheus that has two days of the series that the rules record."""
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path[:0] = [str(pathlib.Path(path).resolve()) for path in ('deploy/tests', 'tests/system')]
import report
from one_daemon import DAEMON, OneDaemon

PROMETHEUS = os.environ.get('NCCL_EXPORTER_PROMETHEUS', '/usr/bin/prometheus')
PROMTOOL = os.environ.get('NCCL_EXPORTER_PROMTOOL', '/usr/bin/promtool')
HOUR, STEP = 3600, 60  # the rules record once a minute
BLUE = {'nccl_job': '4711', 'uid': '1000', 'slurm_job_user': 'alice', 'team': 'blue'}
RED = {'nccl_job': '4712', 'uid': '1001', 'slurm_job_user': 'bob', 'team': 'red'}
NAMES = ('slurm_job_user', 'team')


def of_job(labels):
    return {name: value for name, value in labels.items() if name not in NAMES}


def lost(labels, cause):
    return 'job:nccl_lost_gpu_seconds:rate', of_job(labels) | {'cause': cause}


# (family, labels), value, first and last hour.
SERIES = [
    (('job:nccl_job:info', BLUE), 8, 0, 48), (('job:nccl_job:info', RED), 4, 0, 24),
    (lost(BLUE, 'cpu_wait'), 1, 0, 6), (lost(BLUE, 'late_rank'), 1, 6, 12), (lost(BLUE, 'hang'), 1, 12, 14), (lost(BLUE, 'uneven_work'), 1, 14, 48),
    (lost(RED, 'uneven_work'), 0, 0, 24), (lost(RED, 'slow_transfers'), 0.5, 0, 24),
]
# A job without GPU times, of eight ranks: each is waited for ten minutes, and five minutes are a hang.
UNTIMED = {'nccl_job': '4713', 'uid': '1002'}
RANKS = [UNTIMED | {'instance': 'node-1:9828', 'hostname': 'node-1', 'pid': str(rank + 100), 'global_rank': str(rank)} for rank in range(8)]
SERIES += [(('job:nccl_ranks_untimed:count', UNTIMED), 8, 0, 48), (('job:nccl_waiting_gpu_seconds:rate', UNTIMED), 7, 20, 20 + 1 / 12)]
for number, rank in enumerate(RANKS):
    SERIES += [(('nccl_process_halted', rank), 0, 0, 48), (('nccl_rank_info', rank | {'gpu': str(number)}), 1, 0, 48),
               (('comm_rank:nccl_waited_for_gpu_seconds:rate', rank | {'gpu': str(number)}), 2, 3 * number + 0.3, 3 * number + 0.3 + 1 / 6)]
CAUSES_OF_BLUE = {'cpu_wait': 6, 'late_rank': 6, 'hang': 2, 'uneven_work': 34}  # hours of one GPU


@unittest.skipUnless(os.path.exists(PROMETHEUS), 'Prometheus is not installed')
class ReportCosts(OneDaemon):
    def setUp(self):
        super().setUp()
        self.to = (int(time.time()) // HOUR - 2) * HOUR
        root = pathlib.Path(self.segments)
        with open(root / 'series', 'w', encoding='utf-8') as out:
            for (family, labels), value, first, last in sorted(SERIES, key=lambda series: series[0][0]):
                text = ','.join(f'{name}="{of_name}"' for name, of_name in labels.items())
                begin, end = (self.to - 48 * HOUR + round(hours * HOUR) for hours in (first, last))
                for at in range(begin + STEP, end + 1, STEP):
                    out.write(f'{family}{{{text}}} {value} {at}\n')
            out.write('# EOF\n')
        subprocess.run([PROMTOOL, 'tsdb', 'create-blocks-from', 'openmetrics', root / 'series', root / 'tsdb'], check=True, capture_output=True)
        (root / 'empty.yml').write_text('{}')
        self.prometheus = f'http://127.0.0.1:{self.free_port()}'
        # Blocks that are made so have no ends of series.
        self.start([PROMETHEUS, f'--config.file={root / "empty.yml"}', f'--storage.tsdb.path={root / "tsdb"}', '--log.level=warn',
                    f'--web.listen-address={self.prometheus[7:]}', f'--query.lookback-delta={STEP - 1}s', '--storage.tsdb.retention.time=1y'])
        self.eventually(self.is_ready)

    def is_ready(self):
        try:
            return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f'{self.prometheus}/-/ready', timeout=10).status == 200
        except OSError:
            return False

    def report(self, *options, hours=48):
        def text_of(at):
            return datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M')
        return subprocess.run([DAEMON, 'report', *options, f'--prometheus={self.prometheus}', f'--from={text_of(self.to - hours * HOUR)}',
                               f'--to={text_of(self.to)}'], check=True, capture_output=True, text=True).stdout

    def costs(self, *options, **time_span):
        return self.report('costs', *options, **time_span)

    def rows(self, *options, **time_span):
        return {row['name']: row for row in json.loads(self.costs('--json', *options, **time_span))['rows']}

    def expect(self, row, gpu_hours, causes):
        self.assertAlmostEqual(row['gpu_seconds'], gpu_hours * HOUR, delta=gpu_hours * HOUR * 0.01)
        self.assertEqual(set(row['causes']), set(causes))
        for cause, hours in causes.items():
            self.assertAlmostEqual(row['causes'][cause], hours * HOUR, delta=hours * HOUR * 0.01, msg=cause)
        self.assertAlmostEqual(row['lost_seconds'], sum(causes.values()) * HOUR, delta=sum(causes.values()) * HOUR * 0.01)

    def test_each_owner_has_its_own_and_the_fleet_the_sum(self):
        for by, blue, red in (('team', 'blue', 'red'), ('user', 'alice', 'bob'), ('job', '4711', '4712')):
            with self.subTest(by=by):
                rows = self.rows(f'--by={by}')
                of = {name: next(row for key, row in rows.items() if name in key) for name in (blue, red)}
                self.assertEqual(len(rows), 3, rows)
                self.expect(of[blue], 8 * 48, CAUSES_OF_BLUE)
                self.expect(of[red], 4 * 24, {'slow_transfers': 12})
                self.expect(rows['all'], 8 * 48 + 4 * 24, CAUSES_OF_BLUE | {'slow_transfers': 12})

    def test_a_part_of_the_time_has_its_part(self):
        self.expect(self.rows(hours=12)['all'], 8 * 12, {'uneven_work': 12})

    def test_the_table_has_shares(self):
        lines = {line.split()[0]: line for line in self.costs().splitlines() if line.strip()}
        self.assertRegex(lines['all'], r'12\.5 %')  # 60 of 480 GPU hours
        self.assertIn('hang', lines['blue'])

    def test_a_report_of_days_counts_what_lasted_for_minutes(self):
        of_job = json.loads(self.report('--job=4713', '--json'))
        # The lookback leaves a second of each minute without a value.
        self.assertAlmostEqual(of_job['gpu_seconds'], 8 * 48 * HOUR, delta=8 * 48 * HOUR * 0.05)
        self.assertAlmostEqual(of_job['waiting_gpu_seconds'], 7 * 300, delta=1)
        self.assertFalse(of_job['knows_waiting'])
        self.assertEqual([1200] * 8, [round(rank['gpu_seconds']) for rank in of_job['waited_for']])
        text = self.report('--job=4713')
        self.assertRegex(' '.join(text.split()), r'35 GPU min of [0-9.]+ GPU h were lost by waiting: 0.2 %. Waits that are no hang are not known:')


if __name__ == '__main__':
    report.main()
