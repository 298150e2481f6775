#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Whether a finding names the true cause on a host: a simulated job with a late rank beside real interference. Needs root and a quiet machine.

Each run has a job of three ranks, of which one is late, and a daemon. Interference is at the late rank (its cause must be named), at all ranks
or at none (no cause may be named). Kinds: other programs on the rank's CPU, a quota that its container uses up, a memory limit that its container
exceeds."""
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

RANKS, STEPS_A_SECOND, WORK_MS, HOGS = 3, 20, 3, 3
QUOTA_US, QUOTA_OF_ANOTHER_US, MEMORY_BYTES = 30_000, 10_000, 24 << 20  # of CPU in 0.1 s
# Ten times as fast as the shipped ones but for the window: the daemon reads the memory pressure every 15 s.
THRESHOLDS = {'interval': '5s', 'window': '30s', 'hold': '15s', 'history': '2m', 'warm-up': '10s'}
LATE_SECONDS, NAME_SECONDS, POLL_SECONDS = 5, 110, 2
AGREED_SECONDS = 20  # after a finding has named the rank for the first time; the last word counts
CAUSES = {'hogs': 'waits for a CPU', 'quota': 'quota', 'memory': 'memory'}
BURN = [sys.executable, '-c', 'while True: pass']
# Writes a file that is larger than what its container may hold: each page waits for others to be written out.
WRITE = [sys.executable, '-c', 'import sys\nfile = open(sys.argv[1], "wb", 0)\n'
         'while True:\n  file.seek(0)\n  for _ in range(128): file.write(bytes(1 << 20))']
# Below the root of what Bazel builds.
BUILT = 'exporter/nccl-exporter', 'simulator/nccl-sim', 'plugin/libnccl-profiler-exporter.so'
CGROUPS = pathlib.Path('/sys/fs/cgroup')
CGROUP_V2 = CGROUPS / 'unified' if (CGROUPS / 'unified').is_dir() else CGROUPS  # systemd mounts it so beside v1
IS_V2 = CGROUP_V2 == CGROUPS
QUOTA, MEMORY = ('cpu', 'cpu.cfs_quota_us', 'cpu.max'), ('memory', 'memory.limit_in_bytes', 'memory.max')


class Run:
    def __init__(self, programs, kind, place, seed, cpus):
        self.daemon, self.simulator, self.plugin = (programs / path for path in BUILT)
        self.kind, self.place, self.seed, self.cpus = kind, place, seed, cpus
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

    def contain(self, name, pids, limit=None):
        """As a container is: a cgroup of its own, for one rank or for several. `limit`: QUOTA or MEMORY, and the value."""
        controller, v1_file, v2_file, value = limit or (None,) * 4
        folders = [CGROUP_V2] if IS_V2 or not limit else [CGROUP_V2, CGROUPS / controller]
        for folder in (folder / f'interference-{os.getpid()}-{self.port}-{name}' for folder in folders):
            folder.mkdir()
            self.stack.callback(remove_cgroup, folder)
            if limit and folder.parent == folders[-1]:
                (folder / (v2_file if IS_V2 else v1_file)).write_text(str(value))
            for pid in pids:
                (folder / 'cgroup.procs').write_text(str(pid))

    def interfere(self, targets, pids):
        """Targets share a container, as the ranks of a pod do, or a CPU."""
        contained = list(pids)
        if self.kind == 'hogs' and targets:
            for rank in targets:
                for thread in os.listdir(f'/proc/{pids[rank]}/task'):
                    os.sched_setaffinity(int(thread), {self.cpus[-1]})
            for _ in range(HOGS):
                os.sched_setaffinity(self.start(BURN), {self.cpus[-1]})
        elif targets:
            contained = [rank for rank in pids if rank not in targets]
            if self.kind == 'quota':
                quota_us = QUOTA_US + QUOTA_OF_ANOTHER_US * (len(targets) - 1)
                limit = *QUOTA, f'{quota_us} 100000' if IS_V2 else quota_us
                worker = self.start(BURN)
            else:
                limit = *MEMORY, MEMORY_BYTES
                # On a disk: writes to memory wait for nothing.
                file = self.stack.enter_context(tempfile.NamedTemporaryFile(dir='/var/tmp', prefix='interference-'))
                worker = self.start([*WRITE, file.name])
            self.contain('limited', [*(pids[rank] for rank in targets), worker], limit)
        for rank in contained:
            self.contain(rank, [pids[rank]])

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
            daemon = [self.daemon, '--segment.dir', root, '--findings.config', root / 'thresholds.json', '--findings.socket=',
                      '--web.listen-address', f'127.0.0.1:{self.port}']
            self.start([self.simulator, '--ranks-per-node', RANKS, '--layout', 'dp', '--pace', 'real', '--rate', STEPS_A_SECOND,
                        '--host-work', WORK_MS, '--duration', NAME_SECONDS + 30, '--seed', self.seed, '--segment-dir', root, '--network', 'none',
                        '--incident', f'slow-rank:rank={late},percent=30,from={LATE_SECONDS}'],
                       env={**os.environ, 'NCCL_PROFILER_PLUGIN': str(self.plugin), 'NCCL_ALLGATHERV_ENABLE': '0',
                            'NCCL_EXPORTER_KERNEL_TIMING': 'on'})
            with contextlib.ExitStack() as first:
                process = subprocess.Popen(list(map(str, daemon)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                first.callback(lambda: (process.kill(), process.wait()))
                time.sleep(5)
                pids = self.pids()
            self.interfere({'rank': [late], 'all': list(pids), 'nobody': []}[self.place], pids)
            # A container has its cgroups from the start, so the daemon reads seldom which they are.
            self.start(daemon)
            said = None
            end = time.monotonic() + NAME_SECONDS
            while time.monotonic() < end:
                time.sleep(POLL_SECONDS)
                for finding in self.findings():
                    if [culprit['pid'] for culprit in finding['culprits']] == [pids[late]]:
                        end = end if said is not None else min(end, time.monotonic() + AGREED_SECONDS)
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
    parser.add_argument('--programs', default='bazel-bin', type=pathlib.Path, help='what Bazel has built (%(default)s)')
    parser.add_argument('--runs', type=int, default=40, help='of each place of the interference')
    parser.add_argument('--first-seed', type=int, default=1)
    parser.add_argument('--kinds', default=','.join(CAUSES))
    parser.add_argument('--places', default='rank,nobody,all')
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    right = {}
    for place in options.places.split(','):
        for seed in range(options.first_seed, options.first_seed + options.runs):
            kinds = options.kinds.split(',')
            kind = kinds[seed % len(kinds)]
            said = Run(options.programs.absolute(), kind, place, seed, cpus).play()
            named = [cause for cause, words in CAUSES.items() if said and words in said and not said.startswith('nothing unusual')]
            is_right = said is not None and (kind in named if place == 'rank' else not named)
            right.setdefault(place, []).append(is_right)
            print(f'{"right" if is_right else "WRONG"} {place:6} {kind:6} seed {seed:2}: {said}', flush=True)
    for place, results in right.items():
        print(f'{place}: {sum(results)} of {len(results)} right')
    sys.exit(not all(sum(results) >= (0.95 if place == 'rank' else 1) * len(results) for place, results in right.items()))


if __name__ == '__main__':
    main()
