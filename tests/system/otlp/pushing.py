# SPDX-License-Identifier: Apache-2.0
"""A daemon with a job that has ended, and a process beside it: `nccl-exporter otlp` or `extension run`."""
import contextlib
import json
import pathlib
import re
import sys
import urllib.request

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer', 'tests/system/otlp')]
from processes import ProcessTest, free_port

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LINE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class PushTest(ProcessTest):
    def setUp(self):
        super().setUp()
        self.segments = self.root / 'segments'
        self.segments.mkdir()
        self.truth = self.root / 'truth.json'
        job = self.start([self.root / 'nccl-sim', '--plugin', self.root / 'libnccl-profiler-exporter.so', '--segment-dir', self.segments,
                          '--ranks-per-node', '2', '--layout', 'single', '--duration', '20', '--truth', self.truth, '--env', 'NCCL_ALLGATHERV_ENABLE=0',
                          '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on'])
        self.assertEqual(0, job.wait(), job.text())
        self.daemon = self.start_daemon()

    def start_daemon(self, *flags, port=None):
        daemon = self.start([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{port or self.port}', f'--segment.dir={self.segments}',
                             '--segment.retention=1h', '--findings.socket=', *flags])
        self.eventually(lambda: 'listens at' in daemon.text(), daemon.text)
        return daemon

    def push(self, endpoint, *flags, environment=(), interval='300ms'):
        return self.start([self.root / 'nccl-exporter', 'otlp', f'--daemon=http://127.0.0.1:{self.port}', f'--endpoint={endpoint}',
                           f'--interval={interval}', *flags], env={'PATH': '/usr/bin:/bin', **dict(environment)})

    def expect_truth(self, series):
        """Values by name and labels, as scraped() has them, are those of the simulator's account of the job."""
        compared = 0
        for rank in json.loads(self.truth.read_text())['ranks']:
            for communicator in rank['communicators']:
                for function, true in communicator['functions'].items():
                    wanted = [('nccl_api_calls_total', {'function': function}, true['calls']),
                              ('nccl_collective_duration_seconds_count', {'collective': function}, sum(true['duration'].values()))]
                    for size, counts in true['sizes'].items():
                        for name in 'operations', 'bytes', 'timed_operations':
                            wanted.append((f'nccl_collective_{name}_total', {'collective': function, 'size': size}, counts[name]))
                    for name, labels, value in wanted:
                        labels = {**labels, 'comm': communicator['id'], 'rank': str(communicator['rank'])}.items()
                        self.assertEqual([value], [got for (family, own), got in series.items() if family == name and labels <= own], (name, labels))
                        compared += value > 0
        self.assertEqual(2 * 5, compared, 'of the only function of each rank')

    def scraped(self, accept='text/plain;version=0.0.4', port=None):
        """Values by name and labels of one scrape, a histogram's bucket as a series of its own."""
        request = urllib.request.Request(f'http://127.0.0.1:{port or self.port}/metrics', headers={'Accept': accept})
        with OPENER.open(request, timeout=60) as page:
            lines = page.read().decode().splitlines()
        series = {}
        for line in lines:
            if line.startswith('#'):
                continue
            name, labels, value = LINE.fullmatch(line).groups()
            pairs = ((key, text.replace('\\"', '"').replace('\\n', '\n').replace('\\\\', '\\')) for key, text in LABEL.findall(labels or ''))
            series[name, frozenset(pairs)] = float(value)
        return series
