#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether the page names the true cause on a host: a simulated job with a late rank beside real interference, on a quiet machine and as root.

Each run has a job of four ranks of which one is late, and a daemon. Interference is at the late rank (its cause must be named), at all ranks or at none
(no cause may be named). Kinds: other programs on the rank's CPU, a quota that its container uses up, a memory limit that its container exceeds."""
import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

RANKS, STEPS_A_SECOND = 4, 20
# Ten times as fast as the shipped ones but for the window: the daemon reads the memory pressure every 15 s.
THRESHOLDS = {'interval': '5s', 'window': '45s', 'hold': '15s', 'history': '2m', 'warm-up': '10s'}
LATE_SECONDS, NAME_SECONDS, POLL_SECONDS = 5, 110, 2
CAUSES = {'hogs': 'waits for a CPU', 'quota': 'quota', 'memory': 'memory'}
BURN = [sys.executable, '-c', 'while True: pass']
# A worker of a data loader that reads more than its container may hold.
THRASH = [sys.executable, '-c', 'import sys\nwhile True:\n  with open(sys.argv[1], "rb", 0) as file:\n    while file.read(1 << 16): pass']
CGROUPS = pathlib.Path('/sys/fs/cgroup')
UNIFIED = CGROUPS / 'unified' if (CGROUPS / 'unified').is_dir() else CGROUPS
IS_V2 = UNIFIED == CGROUPS and (CGROUPS / 'cgroup.controllers').exists()


class Run:
    def __init__(self, programs, kind, place, seed, cpus):
        self.programs, self.kind, self.place, self.seed, self.cpus = programs, kind, place, seed, cpus
        self.stack = contextlib.ExitStack()

    def start(self, command, **options):
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **options)
        self.stack.callback(lambda: (os.killpg(process.pid, signal.SIGKILL), process.wait()))
        return process.pid

    def findings(self):
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/api/v1/findings', timeout=10) as answer:
            return [finding for finding in json.load(answer)['findings'] if finding['kind'] == 'late_rank']

    def pids(self):
        """By rank."""
        with urllib.request.urlopen(f'http://127.0.0.1:{self.port}/api/v1/node', timeout=10) as answer:
            return {int(process['global_rank']): process['pid'] for process in json.load(answer)['processes']}

    def cgroup(self, name, controllers, settings):
        """Folders of a new cgroup; settings are (v1's controller, v1's file, v1's value, v2's file, v2's value)."""
        folders = {UNIFIED / name} | (set() if IS_V2 else {CGROUPS / controller / name for controller in controllers})
        for folder in folders:
            folder.mkdir()
            self.stack.callback(remove_cgroup, folder)
        for controller, v1_file, v1_value, v2_file, v2_value in settings:
            (UNIFIED / name / v2_file if IS_V2 else CGROUPS / controller / name / v1_file).write_text(str(v2_value if IS_V2 else v1_value))
        return folders

    def interfere(self, rank, pid):
        cpu = self.cpus[-1]
        name = f'interference-{os.getpid()}-{self.port}-{rank}'
        threads = [int(thread) for thread in os.listdir(f'/proc/{pid}/task')]
        if self.kind == 'hogs':
            for thread in threads:
                os.sched_setaffinity(thread, {cpu})
            # All ranks share the hogs of one CPU.
            if rank == min(self.targets):
                for _ in range(3):
                    os.sched_setaffinity(self.start(BURN), {cpu})
            return
        if self.kind == 'quota':
            folders = self.cgroup(name, ['cpu'], [('cpu', 'cpu.cfs_quota_us', 20000, 'cpu.max', '20000 100000')])
            worker = BURN
        else:
            limit = 24 << 20
            folders = self.cgroup(name, ['memory'], [('memory', 'memory.limit_in_bytes', limit, 'memory.max', limit)])
            file = self.programs / f'{name}.data'
            self.stack.callback(lambda: file.unlink(missing_ok=True))
            with open(file, 'wb') as out:
                out.truncate(0)
                for _ in range(128):
                    out.write(os.urandom(1 << 20))
            worker = [*THRASH, file]
        for member in (pid, self.start(worker)):
            for folder in folders:
                (folder / 'cgroup.procs').write_text(str(member))

    def play(self):
        """The line "on its host meanwhile" of the finding that named the late rank, or None where none was named."""
        with self.stack:
            root = pathlib.Path(tempfile.mkdtemp(dir='/dev/shm', prefix='interference-'))
            self.stack.callback(shutil.rmtree, root)
            (root / 'thresholds.json').write_text(json.dumps(THRESHOLDS))
            with socket.socket() as probe:
                probe.bind(('127.0.0.1', 0))
                self.port = probe.getsockname()[1]
            late = self.seed % RANKS
            daemon = [self.programs / 'nccl-exporter', '--segment.dir', root, '--findings.config', root / 'thresholds.json', '--findings.socket=',
                      '--web.listen-address', f'127.0.0.1:{self.port}']
            self.start([self.programs / 'nccl-sim', '--ranks-per-node', RANKS, '--layout', 'dp', '--pace', 'real', '--rate', STEPS_A_SECOND,
                              '--duration', NAME_SECONDS + 30, '--seed', self.seed, '--segment-dir', root, '--network', 'none',
                              '--incident', f'slow-rank:rank={late},percent=30,from={LATE_SECONDS}'],
                             env={**os.environ, 'NCCL_PROFILER_PLUGIN': str(self.programs / 'libnccl-profiler-exporter.so'), 'NCCL_ALLGATHERV_ENABLE': '0', 'NCCL_EXPORTER_KERNEL_TIMING': 'on'})
            with contextlib.ExitStack() as first:
                process = subprocess.Popen(list(map(str, daemon)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                first.callback(lambda: (process.kill(), process.wait()))
                time.sleep(5)
                pids = self.pids()
            self.targets = {'rank': [late], 'all': list(pids), 'nobody': []}[self.place]
            for rank in self.targets:
                self.interfere(rank, pids[rank])
            # A container has its cgroups from the start, so the daemon reads seldom which they are.
            self.start(daemon)
            said = None
            end = time.monotonic() + NAME_SECONDS
            while time.monotonic() < end:
                time.sleep(POLL_SECONDS)
                for finding in self.findings():
                    if [culprit['pid'] for culprit in finding['culprits']] == [pids[late]]:
                        said = dict((line['name'], line['value']) for line in finding['evidence']).get('on its host meanwhile', '')
            return said


def remove_cgroup(folder):
    for _ in range(50):
        for member in (folder / 'cgroup.procs').read_text().split():
            with contextlib.suppress(OSError):
                os.kill(int(member), signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.1)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--programs', required=True, type=pathlib.Path, help='folder with nccl-exporter, nccl-sim and the plugin')
    parser.add_argument('--runs', type=int, default=40, help='of each place of the interference')
    parser.add_argument('--kinds', default=','.join(CAUSES))
    parser.add_argument('--places', default='rank,nobody,all')
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    right = {}
    for place in options.places.split(','):
        for seed in range(1, options.runs + 1):
            kinds = options.kinds.split(',')
            kind = kinds[seed % len(kinds)]
            said = Run(options.programs, kind, place, seed, cpus).play()
            named = [cause for cause, words in CAUSES.items() if said and words in said and not said.startswith('nothing unusual')]
            is_right = said is not None and (kind in named if place == 'rank' else not named)
            right.setdefault(place, []).append(is_right)
            print(f'{"right" if is_right else "WRONG"} {place:6} {kind:6} seed {seed:2}: {said}', flush=True)
    for place, results in right.items():
        print(f'{place}: {sum(results)} of {len(results)} right')
    sys.exit(not all(sum(results) >= (0.95 if place == 'rank' else 1) * len(results) for place, results in right.items()))


if __name__ == '__main__':
    main()
