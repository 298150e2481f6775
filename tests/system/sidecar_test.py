#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rehearses a pod on one machine: job and daemon in PID and mount namespaces of their own, as different users, with only the
shared directory in common. Needs root and namespaces; says so and skips where it has none."""
import contextlib
import os
import pathlib
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

DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN = (os.path.abspath(path) for path in
    ('exporter/nccl-exporter', 'simulator/nccl-sim', 'simulator/libnccl-sim.so', 'simulator/libcuda-sim.so',
     'plugin/libnccl-profiler-exporter.so'))
PLACE_PLUGIN = os.path.abspath('deploy/image/place-plugin')
DAEMON_USER, JOB_USER, STRANGER = 65532, 1000, 2000
RETENTION_SECONDS = 1
WAIT_SECONDS = 30


def as_user(uid, command, **options):
    return subprocess.run(['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', '--', *command],
                          capture_output=True, text=True, **options)


def what_is_missing():
    """Why this machine cannot play a pod, or None."""
    if os.geteuid() != 0:
        return 'needs root, to become other users'
    probe = subprocess.run(['unshare', '--pid', '--mount', '--fork', 'setpriv', '--reuid=1000', '--regid=1000', '--clear-groups', 'true'],
                           capture_output=True, text=True)
    return f'no namespaces or users here: {probe.stderr.strip()}' if probe.returncode else None


@unittest.skipIf(what_is_missing(), what_is_missing())
class Sidecar(unittest.TestCase):
    """`exchange` stands for the pod's emptyDir (mode 0777, no sticky bit, owned by root), as the kubelet makes it."""

    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        root = pathlib.Path(tempfile.mkdtemp(dir='/tmp'))
        self.stack.callback(shutil.rmtree, root)
        root.chmod(0o755)
        self.exchange = root / 'exchange'
        self.exchange.mkdir()
        self.exchange.chmod(0o777)
        self.programs = root / 'image'  # where every user may read them, as in an image
        self.programs.mkdir()
        for program in DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN, PLACE_PLUGIN:
            shutil.copy(program, self.programs)
        self.segments, self.plugin = self.exchange / 'segments', self.exchange / 'plugin'
        placed = as_user(DAEMON_USER, [self.programs / 'place-plugin', self.segments, self.plugin],
                         env={'PATH': os.environ['PATH'], 'NCCL_EXPORTER_LIBRARY': str(self.programs / 'libnccl-profiler-exporter.so')})
        self.assertEqual(placed.returncode, 0, placed.stderr)
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.port = probe.getsockname()[1]
        self.start_container(DAEMON_USER, '/run/nccl-exporter', self.segments,
                             [self.programs / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}',
                              '--segment.dir=/run/nccl-exporter', f'--segment.retention={RETENTION_SECONDS}s'])
        self.eventually(lambda: 'nccl_exporter_build_info' in self.metrics())

    def start_container(self, uid, mount_point, source, command, unshare_user=()):
        """A process in a PID and a mount namespace of its own, which sees `source` at `mount_point`. Its first process is killed
        with it, and all others with that."""
        script = ('set -e; mount --make-rprivate /; mount -t tmpfs tmpfs /run; mkdir -p "$1"; mount --bind "$2" "$1"; mount -t proc proc /proc; '
                  'uid=$3; shift 3; exec setpriv --reuid=$uid --regid=$uid --clear-groups --no-new-privs --bounding-set=-all -- "$@"')
        log = self.stack.enter_context(tempfile.TemporaryFile('w+'))
        process = subprocess.Popen(['unshare', '--pid', '--mount', '--ipc', '--uts', '--fork', '--kill-child', 'sh', '-c', script, 'sh', mount_point,
                                    str(source), str(uid), *unshare_user, *map(str, command)], stdout=log, stderr=log, start_new_session=True)
        process.log = log
        # The group, since setpriv ends the tie between the first process and its parent.
        process.kill = lambda: os.killpg(process.pid, signal.SIGKILL) if process.poll() is None else None

        def end():
            process.kill()
            process.wait()
        self.stack.callback(end)
        return process

    def start_job(self, uid=JOB_USER, unshare_user=()):
        return self.start_container(uid, '/run/nccl-exporter', self.segments,
                                    [self.programs / 'nccl-sim', '--plugin', self.plugin / 'libnccl-profiler-exporter.so',
                                     '--segment-dir', '/run/nccl-exporter', '--ranks-per-node', '2', '--layout', 'single', '--duration', '600', '--pace', 'real'],
                                    unshare_user)

    def metrics(self):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f'http://127.0.0.1:{self.port}/metrics', timeout=10) as page:
                return page.read().decode()
        except OSError:
            return ''

    def samples(self, family):
        return [float(line.rsplit(' ', 1)[1]) for line in self.metrics().splitlines() if line.startswith(family + '{')]

    def eventually(self, condition, say=lambda: ''):
        deadline = time.monotonic() + WAIT_SECONDS
        while not condition():
            self.assertLess(time.monotonic(), deadline, say())
            time.sleep(0.05)

    def expect_flow(self, job):
        def say():
            job.log.seek(0)
            return job.log.read() + self.metrics()
        self.eventually(lambda: sum(self.samples('nccl_collective_operations_total')) > 0, say)
        before = sum(self.samples('nccl_collective_operations_total'))
        self.eventually(lambda: sum(self.samples('nccl_collective_operations_total')) > before, say)
        self.assertEqual(set(self.samples('nccl_process_alive')), {1.0})

    def test_metrics_flow_and_a_killed_jobs_series_and_files_vanish(self):
        job = self.start_job()
        self.expect_flow(job)
        self.assertEqual({path.stat().st_uid for path in self.segments.iterdir()}, {JOB_USER})
        job.kill()  # and with it, at once, whatever lives in its PID namespace
        job.wait()
        self.eventually(lambda: self.metrics() and not self.samples('nccl_collective_operations_total'), self.metrics)
        self.eventually(lambda: not list(self.segments.iterdir()))
        self.assertEqual(self.samples('nccl_exporter_segment_errors_total'), [0.0] * len(self.samples('nccl_exporter_segment_errors_total')))

    def test_jobs_of_user_namespaces_are_read(self):
        job = self.start_job(unshare_user=['unshare', '--user', '--map-root-user'])
        try:
            self.expect_flow(job)
        finally:
            job.log.seek(0)
            if 'unshare failed' in job.log.read():
                self.skipTest('users may not make user namespaces here')

    def test_nobody_writes_renames_or_removes_anothers_segment(self):
        self.expect_flow(self.start_job())
        segment = str(next(self.segments.iterdir()))
        for uid in STRANGER, DAEMON_USER:
            self.assertNotEqual(as_user(uid, ['sh', '-c', 'echo x >> "$1"', 'sh', segment]).returncode, 0)
        for command in (['mv', segment, segment + '.mine'], ['rm', '-f', segment], ['truncate', '--size=0', segment], ['chmod', '666', segment],
                        ['ln', segment, segment + '.mine'], ['cp', '/dev/null', str(self.plugin / 'libnccl-profiler-exporter.so')]):
            self.assertNotEqual(as_user(STRANGER, command).returncode, 0, command)
        self.assertEqual(os.stat(segment).st_uid, JOB_USER)

    def test_the_nodes_directory_is_given_away_with_two_capabilities_also_when_it_was_before(self):
        node = self.exchange.parent / 'node'
        for _ in range(2):
            placed = subprocess.run(['setpriv', '--bounding-set=-all,+chown,+fowner', '--no-new-privs', self.programs / 'place-plugin',
                                     f'--owner={DAEMON_USER}:{DAEMON_USER}', node / 'segments', node / 'plugin'], capture_output=True, text=True,
                                    env={'PATH': os.environ['PATH'], 'NCCL_EXPORTER_LIBRARY': str(self.programs / 'libnccl-profiler-exporter.so')})
            self.assertEqual(placed.returncode, 0, placed.stderr)
            self.assertRegex(placed.stderr, r'^place-plugin: .* cannot be mounted .*\n$', 'one line, which says what any user can do')
            status = (node / 'segments').stat()
            self.assertEqual((status.st_uid, status.st_mode & 0o7777), (DAEMON_USER, 0o1777))
        library = (node / 'plugin/libnccl-profiler-exporter.so').stat()
        self.assertEqual((library.st_uid, library.st_mode & 0o7777), (0, 0o644))

    def test_root_of_a_users_own_namespace_reaches_nobody_else(self):
        self.expect_flow(self.start_job())
        segment = str(next(self.segments.iterdir()))
        probe = as_user(STRANGER, ['unshare', '--user', '--map-root-user', 'true'])
        if probe.returncode:
            self.skipTest(f'users may not make user namespaces here: {probe.stderr.strip()}')
        for command in ['rm', '-f', segment], ['truncate', '--size=0', segment], ['chown', '0', segment]:
            self.assertNotEqual(as_user(STRANGER, ['unshare', '--user', '--map-root-user', *command]).returncode, 0, command)


if __name__ == '__main__':
    report.main()
