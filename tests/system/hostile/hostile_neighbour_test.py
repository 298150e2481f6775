#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A user of the node attacks the segment directories while another user's job runs: after each attack, every count of the
victim's ranks must be in a scrape and equal the job's ground truth, and errors must name the attacker. One line per attack.
Needs root, to become other users; says so and skips where it is not."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report
from attacks import ATTACKER, VICTIM, Attacks

DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN = (os.path.abspath(path) for path in
    ('exporter/nccl-exporter', 'simulator/nccl-sim', 'simulator/libnccl-sim.so', 'simulator/libcuda-sim.so',
     'plugin/libnccl-profiler-exporter.so'))
DAEMON_USER = 65532
# The limit of the container in deploy/.
DAEMON_MEMORY_MIB = 256
# The victim's job has network time, by peer.
BETWEEN_NODES = ['--nodes', '2', '--network-chunk', '33554432']
WITH_NETWORK = {'NCCL_EXPORTER_NETWORK_TIMING': 'always'}
JOB = ['--pace', 'real', '--rate', '20', *BETWEEN_NODES]
WAIT_SECONDS = 60


def become(uid):
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def what_is_missing():
    """Why this machine cannot play two users, or None."""
    if os.geteuid() != 0:
        return 'needs root, to become other users'
    child = os.fork()
    if child == 0:
        try:
            become(ATTACKER)
            os._exit(0)
        except OSError:
            os._exit(1)
    return 'no other users here' if os.waitpid(child, 0)[1] else None


class Attacker:
    """A process of the attacker that runs `act`, and then, if `stays`, lives on with what it holds until it is ended. `become_attacker` makes it one."""

    def __init__(self, become_attacker, act, stays=False):
        ready, self.done = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 0
            try:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
                limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
                resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
                become_attacker()
                act()
            except BaseException as problem:  # noqa: the child must not go on as the test
                print(f'the attack failed: {problem!r}', file=sys.stderr, flush=True)
                code = 1
            os.write(self.done, b'.')
            while stays and code == 0:
                signal.pause()
            os._exit(code)
        os.close(self.done)
        os.read(ready, 1)
        os.close(ready)

    def end(self):
        return os.waitpid(self.pid, 0)[1]


def loop(become_attacker, act):
    """A process of the attacker that repeats `act` until it is killed."""
    pid = os.fork()
    if pid == 0:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        become_attacker()
        while True:
            with contextlib.suppress(OSError, ValueError):
                act()
    return pid


def samples(text):
    found = {}
    for line in text.splitlines():
        match = re.fullmatch(r'([a-z0-9_]+)(?:\{(.*)\})? (\S+)', line)
        if line.startswith('#') or not match:
            continue
        labels = dict(re.findall(r'([a-z0-9_]+)="((?:[^"\\]|\\.)*)"', match[2] or ''))
        found.setdefault(match[1], []).append((labels, float(match[3])))
    return found


def network_differences(scrape, communicator, uid):
    """Faults of the communicator's network time: bytes and operations of each direction."""
    counted = []
    for direction, true in communicator['network'].items():
        if not isinstance(true, dict):
            continue
        for name, expected in [('nccl_network_timed_bytes_total', true['reported']['bytes']),
                               ('nccl_network_timed_operations_total', true['reported']['operations'])]:
            found = [value for labels, value in scrape.get(name, [])
                     if labels.get('uid') == str(uid) and labels['comm'] == communicator['id']
                     and labels['rank'] == str(communicator['rank']) and labels['direction'] == direction]
            if found != [expected]:
                counted.append(f'{name} of {direction} is {found}, not {expected}')
    return counted


def differences(scrape, truth, uid):
    """Faults and gaps of a user's job in a scrape. Series with another `uid` are of another user who claims its labels."""
    wrong = []

    def value(name, **wanted):
        found = [v for labels, v in scrape.get(name, [])
                 if labels.get('uid') == str(uid) and all(labels.get(k) == x for k, x in wanted.items())]
        return found[0] if len(found) == 1 else f'{len(found)} series'

    def expect(expected, name, **wanted):
        got = value(name, **wanted)
        if (0 if got == '0 series' else got) != expected:
            wrong.append(f'{name}{wanted} is {got}, not {expected}')

    for rank in truth['ranks']:
        for communicator in rank['communicators']:
            for function, true in communicator['functions'].items():
                where = {'comm': communicator['id'], 'rank': str(communicator['rank'])}
                expect(true['calls'], 'nccl_api_calls_total', function=function, **where)
                expect(sum(true['duration'].values()), 'nccl_collective_duration_seconds_count', collective=function, **where)
                for size, counts in true['sizes'].items():
                    expect(counts['operations'], 'nccl_collective_operations_total', collective=function, size=size, **where)
                    expect(counts['bytes'], 'nccl_collective_bytes_total', collective=function, size=size, **where)
                expect(1, 'nccl_communicator_info', **where)
            if 'network' in communicator:
                wrong += network_differences(scrape, communicator, uid)
    return wrong


@unittest.skipIf(what_is_missing(), what_is_missing())
class HostileNeighbour(Attacks, unittest.TestCase):
    attacker = ATTACKER

    def setUp(self):
        self.attacking = []  # processes
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.root = pathlib.Path(tempfile.mkdtemp(dir='/dev/shm'))
        self.stack.callback(shutil.rmtree, self.root, ignore_errors=True)
        self.root.chmod(0o755)
        self.programs = self.root / 'programs'
        self.programs.mkdir()
        for program in DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN:
            shutil.copy(program, self.programs)
        self.results = self.root / 'results'
        self.results.mkdir()
        self.results.chmod(0o777)
        # A segment with counts, as the attacker may copy it.
        template = self.root / 'template'
        self.make_directory(template)
        self.run_job(template)
        self.template = next(template.glob('*.seg')).read_bytes()

    def make_directory(self, path):
        path.mkdir()
        os.chown(path, DAEMON_USER, DAEMON_USER)
        path.chmod(0o1777)

    def start(self, uid, command, environment={}):
        log = self.stack.enter_context(tempfile.TemporaryFile('w+'))
        process = subprocess.Popen(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--', *map(str, command)],
                                   stdout=log, stderr=log, env=os.environ | environment)
        process.log = log
        return process

    def start_job(self, uid, directory, extra=(), environment={}):
        truth = self.results / f'truth-{uid}.json'
        with contextlib.suppress(FileNotFoundError):
            truth.unlink()
        job = self.start(uid, [self.programs / 'nccl-sim', '--plugin', self.programs / 'libnccl-profiler-exporter.so', '--segment-dir', directory,
                               '--truth', truth, '--layout', 'dp', '--ranks-per-node', '2', *extra], environment)
        job.truth = truth
        return job

    def end_job(self, job):
        code = job.wait(WAIT_SECONDS)
        job.log.seek(0)
        self.assertEqual(code, 0, job.log.read())
        return json.loads(job.truth.read_text())

    def run_job(self, directory, extra=(), environment={}):
        return self.end_job(self.start_job(VICTIM, directory, extra, environment))

    def metrics(self):
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/metrics', timeout=30) as answer:
            return samples(answer.read().decode())

    def trace_differences(self, truth):
        """Differences of the victim in /debug/trace from the truth: each communicator of each rank is there once. Its operations have no GPU times
        here."""
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/debug/trace?last=10m', timeout=30) as answer:
            nodes = json.load(answer)['ncclExporterTrace']['nodes']
        found = sorted((communicator['comm'], communicator['rank']) for node in nodes for process in node['processes'] if process['uid'] == VICTIM
                       for communicator in process['communicators'])
        expected = sorted((communicator['id'], communicator['rank']) for rank in truth['ranks'] for communicator in rank['communicators']
                          if communicator['functions'])
        return [] if found == expected else [f'/debug/trace has {found} of the victim, not {expected}']

    def eventually(self, holds):
        """The last answer of `holds`, which is empty where all is well."""
        until = time.monotonic() + WAIT_SECONDS
        while (answer := holds()) and time.monotonic() < until:
            time.sleep(0.2)
        return answer

    def start_daemon(self):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        daemon = self.start(DAEMON_USER, [self.programs / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}',
                                          '--web.enable-debug-trace', f'--segment.dir={self.shared}', f'--segment.dir={self.other}',
                                          f'--segment.dir={self.commons}/private-*'])

        def is_silent():
            with contextlib.suppress(OSError):
                return not self.metrics()
            return daemon.poll() is None
        self.eventually(is_silent)
        self.assertIsNone(daemon.poll(), 'the daemon did not start')
        return daemon

    def make_directories(self, number):
        self.shared, self.other = self.root / f'shared{number}', self.root / f'other{number}'
        self.commons = self.root / f'commons{number}'  # as /dev/shm, where users make private directories
        for directory in self.shared, self.other, self.commons:
            self.make_directory(directory)

    def memory_problems(self, daemon):
        """The largest memory that the daemon had."""
        peak = int(re.search(r'VmHWM:\s+(\d+) kB', pathlib.Path(f'/proc/{daemon.pid}/status').read_text())[1]) / 1024
        self.peaks.append(peak)
        return [f'the daemon used {peak:.0f} MiB'] if peak >= DAEMON_MEMORY_MIB else []

    def play(self, number, attack):
        self.make_directories(number)
        daemon = self.start_daemon()
        try:
            problems = self.attack_and_jobs(attack)
            scrape = self.metrics()
            errors = {(labels['uid'], labels['reason']) for labels, _ in scrape.get('nccl_exporter_user_segment_errors_total', [])}
            if attack.error and (str(self.attacker), attack.error) not in errors:
                problems.append(f'no error {attack.error} of uid {self.attacker}, but {errors}')
            if attack.seen and not any(attack.seen.items() <= labels.items() for labels, value in scrape.get(attack.family, []) if float(value)):
                problems.append(f'the daemon has not seen the attack: no {attack.family} with {attack.seen}')
            if named := [error for error in errors if error[0] != str(self.attacker)]:
                problems.append(f'errors of others: {named}')
            if daemon.poll() is not None:
                problems.append('the daemon ended')
            else:
                problems += self.memory_problems(daemon)
        finally:
            for pid in self.attacking:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            self.attacking = []
            daemon.terminate()
            daemon.wait()
            self.remove_directories()
        return problems

    def remove_directories(self):
        for directory in self.shared, self.other, self.commons:
            shutil.rmtree(directory, ignore_errors=True)

    def become_attacker(self):
        become(ATTACKER)

    def begin(self, attack):
        """Begins the attack; returns the problems of the attack itself."""
        problems = []
        if attack.before:
            holder = Attacker(self.become_attacker, attack.before, stays=attack.holds)
            if attack.holds:
                self.attacking.append(holder.pid)
            elif holder.end():
                problems.append('the attack failed')
        if attack.during:
            self.attacking.append(loop(self.become_attacker, attack.during))
        return problems

    def end(self, attack):
        return ['the attack failed'] if attack.after and Attacker(self.become_attacker, attack.after).end() else []

    def attack_and_jobs(self, attack):
        problems = self.begin(attack)
        truth = self.run_job(self.shared, [*JOB, '--duration', '2'], WITH_NETWORK)
        problems += self.end(attack)
        problems += self.eventually(lambda: differences(self.metrics(), truth, VICTIM))[:3]
        return problems + self.eventually(lambda: self.trace_differences(truth))

    def chosen_attacks(self):
        chosen = [int(number) for number in os.environ.get('HOSTILE_ATTACKS', '').split(',') if number]
        return [(number, attack) for number, attack in enumerate(self.attacks(), 1) if not chosen or number in chosen]

    def test_the_victims_series_are_complete_and_right_in_each_attack(self):
        failed, self.peaks = [], []
        for number, attack in self.chosen_attacks():
            begun = time.monotonic()
            problems = self.play(number, attack)
            print(f'{number:2} {attack.name}: {"ok" if not problems else "; ".join(problems)} ({time.monotonic() - begun:.1f} s)', flush=True)
            failed += [attack.name] if problems else []
        print(f'The daemon used at most {max(self.peaks):.0f} MiB.')
        self.assertEqual(failed, [])


if __name__ == '__main__':
    report.main()
