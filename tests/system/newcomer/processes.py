# SPDX-License-Identifier: Apache-2.0
"""Processes of the tests of this folder: our programs in a folder of the test, and processes that end with it."""
import contextlib
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest

DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN = (os.path.abspath(path) for path in
    ('exporter/nccl-exporter', 'simulator/nccl-sim', 'simulator/libnccl-sim.so', 'simulator/libcuda-sim.so',
     'plugin/libnccl-profiler-exporter.so'))
WAIT_SECONDS = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


class ProcessTest(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.root = pathlib.Path(tempfile.mkdtemp(dir='/dev/shm', prefix='newcomer-test-'))  # a tmpfs, as /run
        self.stack.callback(shutil.rmtree, self.root)
        self.root.chmod(0o755)
        for program in DAEMON, SIMULATOR, NCCL, CUDA, PLUGIN:
            shutil.copy(program, self.root)  # where every user may read them
            (self.root / os.path.basename(program)).chmod(0o755)
        self.port = free_port()

    def start(self, command, **options):
        """Its output is text(). It is killed with all that it has started."""
        log = self.stack.enter_context(tempfile.TemporaryFile('w'))
        process = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, start_new_session=True, **options)
        # A file of its own: a position that it shared with the process would move where that writes.
        process.text = pathlib.Path(f'/proc/self/fd/{log.fileno()}').read_text

        def end():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.stack.callback(end)
        return process

    def eventually(self, condition, say, seconds=WAIT_SECONDS):
        deadline = time.monotonic() + seconds
        while not condition():
            self.assertLess(time.monotonic(), deadline, say())
            time.sleep(0.05)
