# SPDX-License-Identifier: Apache-2.0
"""Plays one job on a rig: NCCL's host code with the plugin, until its processes end or nothing happens any more."""
import glob
import json
import os
import pathlib
import signal
import subprocess
import time

from typing import NamedTuple

from completion_poller import POLL_SECONDS, SLOW_POLL_SECONDS, CompletionPoller
from findings_watch import FindingsWatch
from kernel_truth import load_truth
from recorded_segments import read_segments

# So long no kernel has run and no process has made its last call: the job hangs. Without idle cores a communicator's first collective takes
# 4 s, and that of 12 communicators in 4 processes a minute.
QUIET_SECONDS = 180
# All calls are made and all kernels have run; only communicators are destroyed.
QUIET_SECONDS_AT_THE_END = 30
LOOK_SECONDS = 0.05
OUTPUT_SHOWN = 400

COMMON_ENVIRONMENT = {
    # Rigs are small machines; the plugin refuses kernel timing where ranks have too few cores.
    'NCCL_EXPORTER_KERNEL_TIMING': 'on',
    'NCCL_CUMEM_ENABLE': '0', 'NCCL_CUMEM_HOST_ENABLE': '0', 'NCCL_NVLS_ENABLE': '0', 'NCCL_P2P_DISABLE': '1', 'NCCL_IB_DISABLE': '1',
    'NCCL_NET': 'Socket', 'NCCL_SOCKET_IFNAME': 'lo', 'NCCL_MNNVL_ENABLE': '0', 'NCCL_GIN_ENABLE': '0', 'NCCL_RAS_ENABLE': '0',
}


# Fields of Programs, below the root of what Bazel builds.
BUILT = ('plugin/libnccl-profiler-exporter.so', 'tests/nccl_host/segments_as_json', 'tests/nccl_host/host_job/host_job', 'exporter/nccl-exporter')


class Programs(NamedTuple):
    """Paths. Without `plugin` NCCL loads none."""
    plugin: str
    reader: str
    driver: str
    daemon: str


class Rig:
    """A folder with `lib`: one NCCL release on replacements of the CUDA libraries."""

    def __init__(self, folder):
        self.library = pathlib.Path(folder).absolute() / 'lib'
        self.version = self.ask_version()
        self.release = f'{self.version // 10000}.{self.version // 100 % 100}.{self.version % 100}'

    def ask_version(self):
        """In a process of its own, for the search path of libraries is read at its start."""
        script = 'import ctypes, sys; v = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)'
        answer = subprocess.run(['python3', '-c', script, self.library / 'libnccl.so.2'], capture_output=True, text=True,
                                env={**os.environ, 'LD_LIBRARY_PATH': str(self.library)})
        if answer.returncode:
            raise ValueError(f'{self.library}: {answer.stderr.strip().splitlines()[-1]}')
        return int(answer.stdout)


def rigs_of(folder):
    """A rig is FOLDER, or each FOLDER/RELEASE."""
    folders = [path.parent.parent for path in sorted(pathlib.Path(folder).glob('lib/libnccl.so.2'))]
    folders += [path.parent.parent for path in sorted(pathlib.Path(folder).glob('*/lib/libnccl.so.2'))]
    if not folders:
        raise ValueError(f'{folder}: neither lib/libnccl.so.2 nor RELEASE/lib/libnccl.so.2 is in it')
    return [Rig(path) for path in folders]


class PlayedJob:
    """Records of a job after it was played; `processes` and `accounts` by process id."""

    def __init__(self, job, rig):
        self.job, self.rig = job, rig
        self.is_hung, self.status, self.output = False, None, ''
        self.truth, self.processes, self.accounts, self.poller = {}, {}, {}, None
        self.watch = None  # FindingsWatch of an elastic job


def play(job, rig, programs, document, folder):
    """`folder` is empty, and has all files of the job afterwards."""
    played = PlayedJob(job, rig)
    scratch = pathlib.Path(folder)
    segments = scratch / 'segments'
    segments.mkdir()
    shared_memory = f'/fakecuda-{scratch.name}'
    environment = {**os.environ, **COMMON_ENVIRONMENT, **job.environment, 'LD_LIBRARY_PATH': str(rig.library), 'NCCL_PROFILER_PLUGIN': programs.plugin or 'none',
                   'NCCL_EXPORTER_DIR': str(segments), 'FAKECUDA_TRUTH': str(scratch / 'truth'), 'HOST_JOB_ACCOUNT': str(scratch / 'account')}
    if '-p' in job.options.split():
        environment['FAKECUDA_SHM'] = shared_memory
    played.poller = CompletionPoller(document, segments, SLOW_POLL_SECONDS if job.is_elastic else POLL_SECONDS)
    if job.is_elastic and programs.plugin:
        played.watch = FindingsWatch(programs.daemon, segments, scratch / 'daemon.log')
    with open(scratch / 'output', 'w+', encoding='utf-8', errors='replace') as output:
        process = subprocess.Popen([programs.driver, *job.options.split()], env=environment, stdout=output, stderr=output,
                                   start_new_session=True)
        try:
            played.poller.start()
            played.is_hung = not ends(process, scratch, processes_of(job))
        finally:
            if played.watch:
                played.watch.stop()
            stop_all(process)
            played.poller.stop()
            pathlib.Path(f'/dev/shm{shared_memory}').unlink(missing_ok=True)
        played.status = process.returncode
        output.seek(0)
        played.output = output.read()[-OUTPUT_SHOWN:]
    played.processes = {process.pid: process for process in read_segments(programs.reader, segments).values()}
    for path in glob.glob(str(scratch / 'account.*.json')):
        played.accounts[int(path.split('.')[-2])] = json.loads(pathlib.Path(path).read_text(encoding='utf-8'))
    played.truth = load_truth(scratch / 'truth')
    return played


def processes_of(job):
    options = job.options.split()
    return int(options[options.index('-n') + 1]) if '-p' in options else 1


def ends(process, scratch, processes):
    """Whether the job ended, by itself: as long as its files grow it is alive."""
    seen, since = None, time.monotonic()
    while process.poll() is None:
        accounts = sorted(scratch.glob('account.*'))
        now = [(path.name, path.stat().st_size) for path in [*sorted(scratch.glob('truth.*')), *accounts]]
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() > since + (QUIET_SECONDS_AT_THE_END if len(accounts) == processes else QUIET_SECONDS):
            return False
        time.sleep(LOOK_SECONDS)
    return True


def stop_all(process):
    """The whole session: a rank that hangs has brothers."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
