#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Numbers of `nccl-exporter report`, beside what simulated jobs really did: waits by segments and by a real Prometheus, and `report diff` of jobs that are equal or
not. Rules and daemon are 15 times as fast as the shipped ones. Skips where Prometheus is not installed."""
import collections
import contextlib
import itertools
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report

DAEMON, SIMULATOR, PLUGIN = map(os.path.abspath, ('exporter/nccl-exporter', 'simulator/nccl-sim', 'plugin/libnccl-profiler-exporter.so'))
GENERATE = os.path.abspath('deploy/prometheus/generate-rules')
PROMETHEUS = '/usr/bin/prometheus'
TIME_SCALE = 15
NANOSECONDS = 1e9
TOLERANCE = 0.01
SECONDS = 40  # of a job
PAIRS, AT_ONCE = 20, 8
SLOWER = 1.1


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


def true_wait(truth):
    """GPU seconds: in each operation a rank waits from its start to that of the last rank. In a communicator across nodes only its longest wait of a step counts. What
    all ranks of a communicator wait, each for another, is jitter."""
    members = collections.defaultdict(list)  # by communicator
    for rank in truth['ranks']:
        for communicator in rank['communicators']:
            members[communicator['id']].append(communicator)
    total = 0
    for ranks in members.values():
        spans_nodes, waits, step = ranks[0]['nodes'] > 1, [collections.Counter() for _ in ranks], 0
        least_bytes = min(operation['bytes'] for operation in ranks[0]['operations'])
        for number, same in enumerate(zip(*(rank['operations'] for rank in ranks))):
            starts = [operation['start_ns'] / NANOSECONDS for operation in same]
            for wait, start in zip(waits, starts):
                place = step if spans_nodes else number
                wait[place] = max(wait[place], max(starts) - start)
            step += same[0]['bytes'] == least_bytes  # the last operation of a step
        sums = [sum(wait.values()) for wait in waits]
        total += sum(sums) - len(sums) * min(sums)
    return total


class Cluster(contextlib.ExitStack):
    """A daemon that reads the segments of all simulated nodes, and a Prometheus with the rules that scrapes it."""

    def __init__(self):
        super().__init__()
        self.scratch = pathlib.Path(self.enter_context(tempfile.TemporaryDirectory(dir='/dev/shm')))
        self.segments = self.scratch / 'segments'
        self.segments.mkdir()
        self.port, port = free_port(), free_port()
        subprocess.run([sys.executable, GENERATE, '--time-scale', str(TIME_SCALE), '--output', self.scratch], check=True)
        (self.scratch / 'prometheus.yml').write_text(json.dumps({
            'global': {'scrape_interval': '1s', 'evaluation_interval': '1s'}, 'rule_files': [f'{self.scratch}/nccl-exporter.rules.yml'],
            'scrape_configs': [{'job_name': 'nccl-exporter', 'static_configs': [{'targets': [f'127.0.0.1:{port}']}]}]}))
        self.start([DAEMON, f'--web.listen-address=127.0.0.1:{port}', f'--segment.dir={self.segments}', f'--findings.time-scale={TIME_SCALE}', '--log.level=warn'])
        self.start([PROMETHEUS, f'--config.file={self.scratch}/prometheus.yml', f'--storage.tsdb.path={self.scratch}/data', '--query.lookback-delta=20s',
                    f'--web.listen-address=127.0.0.1:{self.port}', '--log.level=error'])
        time.sleep(3)

    def start(self, command):
        process = subprocess.Popen(command)
        self.callback(process.wait)
        self.callback(process.terminate)
        return process

    def play(self, number, *flags, **changes):
        """Starts a job of two nodes with two ranks each."""
        options = {'layout': 'fsdp', 'nodes': 2, 'ranks-per-node': 2, 'rate': 5, 'duration': SECONDS} | {name.replace('_', '-'): value for name, value in changes.items()}
        return subprocess.Popen([SIMULATOR, '--plugin', PLUGIN, '--segment-dir', self.segments, '--truth', self.truth(number), '--pace', 'real',
                                 '--channels', '2', '--seed', str(number), '--slurm-job-id', str(number), *flags,
                                 *(word for name, value in options.items() for word in (f'--{name}', str(value)))],
                                stdout=subprocess.DEVNULL, env=os.environ | {'NCCL_EXPORTER_KERNEL_TIMING': 'on', 'NCCL_ALLGATHERV_ENABLE': '0'})

    def truth(self, number):
        return self.scratch / f'truth{number}.json'

    def report(self, *arguments):
        answer = subprocess.run([DAEMON, 'report', *map(str, arguments)], capture_output=True, text=True)
        assert answer.returncode == 0, answer.stderr
        return answer.stdout

    def asked(self, *arguments):
        return self.report(*arguments, f'--prometheus=http://127.0.0.1:{self.port}')


@unittest.skipUnless(os.access(PROMETHEUS, os.X_OK), f'{PROMETHEUS} is not installed')
class Numbers(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.close)

    def played(self, jobs):
        """Plays jobs, by number, flags and changes of the options, some at a time."""
        jobs = iter(jobs)
        while some := list(itertools.islice(jobs, AT_ONCE)):
            for process in [self.cluster.play(number, *flags, **changes) for number, flags, changes in some]:
                self.assertEqual(process.wait(), 0)

    def test_waits_are_those_of_the_simulator(self):
        """Jobs with a rank that is late in every step: across nodes, and in a group within a node. Prometheus is asked for the time in which nothing begins or ends."""
        jobs = {1: {'layout': 'fsdp'}, 2: {'layout': 'dp'}, 3: {'layout': 'tp', 'nodes': 1, 'ranks_per_node': 4}}
        moment = [time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(time.time() + seconds)) for seconds in (12, SECONDS - 4)]
        begin = time.monotonic()
        self.played((number, ('--truth-operations', '--incident', 'slow-rank:rank=3,percent=20'), changes | {'rate': 20}) for number, changes in jobs.items())
        wall_seconds = time.monotonic() - begin
        for number, changes in jobs.items():
            truly = true_wait(json.loads(self.cluster.truth(number).read_text()))
            by_segments = json.loads(self.cluster.report('--segments', '--daemon=none', f'--segment.dir={self.cluster.segments}', f'--job={number}', '--json'))
            by_prometheus = json.loads(self.cluster.asked(f'--job={number}', '--json', '--from', moment[0], '--to', moment[1]))
            share = by_prometheus['waiting_gpu_seconds'] / by_prometheus['gpu_seconds'] * SECONDS * 4
            print(f"{changes['layout']}: {truly:.3f} GPU s, {by_segments['waiting_gpu_seconds']:.3f} by segments, {share:.3f} by Prometheus", file=sys.stderr)
            with self.subTest(changes['layout']):
                self.assertAlmostEqual(by_segments['waiting_gpu_seconds'] / truly, 1, delta=TOLERANCE)
                self.assertAlmostEqual(share / truly, 1, delta=TOLERANCE)
                self.assertAlmostEqual(by_prometheus['gpu_seconds'] / (4 * (SECONDS - 16)), 1, delta=TOLERANCE)
                self.assertGreater(by_segments['gpu_seconds'], 4 * SECONDS * (1 - TOLERANCE))
                self.assertLess(by_segments['gpu_seconds'], 4 * wall_seconds * (1 + TOLERANCE))
                for shown in by_segments, by_prometheus:
                    self.assertEqual(shown['waited_for'][0]['labels']['global_rank'], '3')

    def test_a_diff_finds_what_is_slower_and_is_silent_else(self):
        noise = ('--incident', 'varying:percent=3')
        slow = PAIRS + 2
        changes = {'rate': 15}  # of a step the AllGathers are 15 % then
        self.played([(number, noise, changes) for number in range(1, PAIRS + 2)] + [(slow, (*noise, '--incident', f'slow-link:times={SLOWER}'), changes)])
        time.sleep(3)  # the last scrape
        for number in range(1, PAIRS + 1):
            with self.subTest(number):
                self.assertEqual(self.cluster.asked('diff', number, number + 1), '')
        found = self.cluster.asked('diff', 1, slow)
        print(found, file=sys.stderr)
        self.assertIn('transfer in AllGather of ', found)
        changes = {change['name'].split(' of ')[0]: change for change in json.loads(self.cluster.asked('diff', 1, slow, '--json'))['changes']}
        self.assertAlmostEqual(changes['transfer in AllGather']['after'] / changes['transfer in AllGather']['before'], SLOWER, delta=0.03)
        # Frozen reports of either source say the same.
        for number in (1, 2, slow):
            for source, text in (('asked', self.cluster.asked(f'--job={number}', '--json')),
                                 ('sums', self.cluster.report('--segments', '--daemon=none', f'--segment.dir={self.cluster.segments}', f'--job={number}', '--json'))):
                (self.cluster.scratch / f'{source}{number}.json').write_text(text)
        for source in 'asked', 'sums':
            first, second, third = (self.cluster.scratch / f'{source}{number}.json' for number in (1, 2, slow))
            self.assertEqual(self.cluster.report('diff', first, second), '')
            self.assertIn('transfer in AllGather of ', self.cluster.report('diff', first, third))

    def test_a_moment_divides_a_job(self):
        job = self.cluster.play(7, '--incident', f'slow-link:times={SLOWER},from={SECONDS}', rate=15, duration=2 * SECONDS)
        time.sleep(SECONDS)
        moment = time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime())
        self.assertEqual(job.wait(), 0)
        time.sleep(3)
        self.assertIn('transfer in AllGather of ', self.cluster.asked('diff', 7, '--at', moment))


if __name__ == '__main__':
    report.main()
