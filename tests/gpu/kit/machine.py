# SPDX-License-Identifier: Apache-2.0
"""The machine that is measured: its libraries, programs that run on them, and a daemon."""
import contextlib
import glob
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

from part_process import SCRATCH, Skip

CANNOT_RUN = 77
NOT_DONE = 124
LIBRARIES = {'NCCL': ['libnccl.so.2'], 'CUDART': ['libcudart.so.13', 'libcudart.so.12'], 'CUBLAS': ['libcublas.so.13', 'libcublas.so.12']}
RUN = 'import ctypes, sys; sys.exit(ctypes.CDLL(sys.argv[1]).RunProgram(*(text.encode() for text in sys.argv[2:])))'
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Failed(Exception):
    """A program did not do what it should."""


def library_path(names, folders=None):
    """Where a Python environment has a library; empty where the loader is to find it. LD_LIBRARY_PATH comes before the environment."""
    asked = [folder for folder in os.environ.get('LD_LIBRARY_PATH', '').split(':') if folder]
    for pattern in asked + [os.path.join(folder, 'nvidia', '*', 'lib') for folder in (folders or sys.path)]:
        for name in names:
            found = sorted(glob.glob(os.path.join(pattern, name)))
            if found:
                return found[0]
    return ''


def objects(lines):
    """The JSON objects of a program's output, into which NCCL writes lines of its own."""
    for row in lines:
        if row.startswith('{'):
            yield json.loads(row)
        elif row.strip():
            print(row.rstrip())


def samples(text):
    """(name, labels, value) of each line of an exposition."""
    for row in text.splitlines():
        if row and not row.startswith('#'):
            name, _, rest = row.partition('{')
            labels, _, value = rest.rpartition('} ')
            if not rest:
                name, _, value = row.partition(' ')
            yield name, dict(LABEL.findall(labels)), float(value.split()[0])


class Daemon:
    def __init__(self, program, segments):
        with socket.socket() as free:
            free.bind(('127.0.0.1', 0))
            self.address = f'127.0.0.1:{free.getsockname()[1]}'
        self.process = subprocess.Popen([program, f'--web.listen-address={self.address}', f'--segment.dir={segments}', '--segment.retention=24h',
                                         '--findings.socket=', '--log.level=warn'])
        deadline = time.monotonic() + 20
        while not self.is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise Failed('the daemon does not start')
            time.sleep(0.05)

    def is_ready(self):
        try:
            return bool(self.get('/-/ready'))
        except OSError:
            return False

    def get(self, path):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f'http://{self.address}{path}', timeout=20) as answer:
            return answer.read().decode()

    def samples(self):
        return list(samples(self.get('/metrics')))

    def findings(self):
        return json.loads(self.get('/api/v1/findings'))['findings']

    def stop(self):
        self.process.kill()
        self.process.wait()


class Machine:
    def __init__(self, kit, plugin=None, others=None, slow=1):
        self.kit = pathlib.Path(kit)
        self.plugin = pathlib.Path(plugin or self.kit / 'lib/nccl-exporter/libnccl-profiler-exporter.so').resolve()
        self.empty = self.kit / 'lib/libnccl-profiler-empty.so'
        self.probe = self.kit / 'lib/libnccl-profiler-probe.so'
        self.others = {name: pathlib.Path(path).resolve() for name, path in (others or {}).items()}
        self.libraries = {name: library_path(names) for name, names in LIBRARIES.items()}
        self.slow = slow
        self._facts = None

    def seconds(self, limit):
        """A time limit on this machine."""
        return int(limit * self.slow)

    def environment(self, **variables):
        """Variables of the programs. Plugins are named by their file, which NCCL finds by the loader: NCCL 2.27.3 takes no path."""
        folders = [path.parent for path in (self.plugin, self.empty, *self.others.values())]
        folders += [pathlib.Path(path).parent for path in self.libraries.values() if path]
        made = {name: value for name, value in os.environ.items() if not name.startswith('NCCL_EXPORTER_') and name != 'CUDA_DEVICE_MAX_CONNECTIONS'}
        made.update(NCCL_DEBUG=os.environ.get('NCCL_DEBUG', 'WARN'), NCCL_ALLGATHERV_ENABLE='0', NCCL_PROFILER_PLUGIN='none')
        made['LD_LIBRARY_PATH'] = ':'.join([*dict.fromkeys(map(str, folders)), *filter(None, [os.environ.get('LD_LIBRARY_PATH')])])
        made.update({f'GPU_KIT_{name}': path for name, path in self.libraries.items()})
        made.update(variables)
        return made

    @contextlib.contextmanager
    def folder(self):
        """A new folder: jobs meet there, and segments lie there. It is inside that of the part, which goes when the part has ended or was killed."""
        folder = tempfile.mkdtemp(dir=os.environ[SCRATCH])
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def daemon(self, segments):
        daemon = Daemon(self.kit / 'lib/nccl-exporter/bin/nccl-exporter', segments)
        try:
            yield daemon
        finally:
            daemon.stop()

    def start(self, program, options, **variables):
        command = [sys.executable, '-c', RUN, str(self.kit / 'lib/libgpu-kit-programs.so'), program, json.dumps(options)]
        return subprocess.Popen(command, env=self.environment(**variables), stdout=subprocess.PIPE, universal_newlines=True)

    def rows(self, program, options, **variables):
        """The JSON objects that a program prints, as they come. The last line of one that cannot run says why."""
        process, last = self.start(program, options, **variables), ''

        def lines():
            nonlocal last
            for last in process.stdout:
                yield last
        yield from objects(lines())
        if process.wait() == CANNOT_RUN:
            raise Skip(last.strip())
        if process.returncode != 0:
            raise Failed(f'{program} did not end within its limit' if process.returncode == NOT_DONE else f'{program} ended with status {process.returncode}')

    def run(self, program, options, **variables):
        """All of them. A program that starts ranks has a limit of its own; that of the part ends the others."""
        return list(self.rows(program, options, **variables))

    def facts(self):
        if self._facts is None:
            self._facts = self.run('facts', {})[0]
        return self._facts

    def shape(self):
        """A GPU for each rank, or two ranks on one GPU, which NCCL then takes for two hosts."""
        gpus = len(self.facts()['gpus'])
        return {'ranks': min(gpus, 8), 'one_host': True} if gpus > 1 else {'ranks': 2, 'one_host': False}

    def with_plugin(self, segments, kernel_timing='auto'):
        """Variables of a job that is measured."""
        return {'NCCL_PROFILER_PLUGIN': self.plugin.name, 'NCCL_EXPORTER_DIR': segments, 'NCCL_EXPORTER_KERNEL_TIMING': kernel_timing}
