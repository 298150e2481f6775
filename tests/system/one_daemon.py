# SPDX-License-Identifier: Apache-2.0
"""A test with the real daemon over a directory of its own, and jobs with the real plugin."""
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request

DAEMON, SIMULATOR, PLUGIN = (os.path.abspath(path) for path in
    ('exporter/nccl-exporter', 'simulator/nccl-sim', 'plugin/libnccl-profiler-exporter.so'))
PATIENCE_SECONDS = 120


class OneDaemon(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.segments = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.processes = []

    def start(self, command):
        log = self.stack.enter_context(tempfile.TemporaryFile('w+'))
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        self.processes.append((process, log))

        def end():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self.stack.callback(end)
        return process

    @staticmethod
    def free_port():
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            return probe.getsockname()[1]

    def start_daemon(self, *flags):
        self.port = self.free_port()
        self.start([DAEMON, f'--web.listen-address=127.0.0.1:{self.port}', f'--segment.dir={self.segments}', *flags])
        self.eventually(lambda: self.samples('nccl_exporter_build_info'))

    def start_job(self, *options, around=()):
        """A job that lives longer than the test. `around`: a command that runs it."""
        return self.start([*around, SIMULATOR, '--plugin', PLUGIN, '--segment-dir', self.segments, '--pace', 'real', '--duration', '600',
                           '--env', 'NCCL_ALLGATHERV_ENABLE=0', *options])

    def get(self, path):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f'http://127.0.0.1:{self.port}{path}', timeout=30) as page:
                return page.read().decode()
        except OSError:
            return ''

    def samples(self, family, **labels):
        pattern = re.compile(family + r'(?:\{(.*)\})? (\S+)')
        lines = (pattern.fullmatch(line) for line in self.get('/metrics').splitlines())
        return [float(line[2]) for line in lines if line and all(f'{name}="{value}"' in (line[1] or '') for name, value in labels.items())]

    def alarms(self):
        """Findings that are more than information."""
        return [finding for finding in json.loads(self.get('/api/v1/findings'))['findings'] if finding['severity'] != 'info']

    def eventually(self, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (found := condition()):
            for process, log in self.processes:
                if process.poll() is not None:
                    log.seek(0)
                    self.fail(f'{process.args} has ended: {log.read()}')
            self.assertLess(time.monotonic(), deadline, 'too late')
            time.sleep(0.2)
        return found
