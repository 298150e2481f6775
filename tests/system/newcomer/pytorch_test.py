#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Does what README.md and docs/pytorch.md say to do with a PyTorch job, with exactly their variables, paths and torchrun's own
variables, and waits for what they promise. The ranks are the simulator's, one release of NCCL per row of the table of torch's.
Needs root and namespaces, for the documented paths; says so and skips where it has none."""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.request

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer')]
import report
from processes import PLUGIN, ProcessTest

README, PYTORCH = (pathlib.Path(name).read_text(encoding='utf-8') for name in ('README.md', 'docs/pytorch.md'))
JOB_USER = 1000
PROMISED_SECONDS = 10
API_OF_MINOR = {23: 1, 25: 2, 26: 3, 27: 4, 28: 5, 29: 6}
OLD_RELEASES = 22304, 22501  # in no torch of the table; in containers
# The reasons of a release whose kernels are timed; two of them are of this machine. And of one whose kernels are not.
TIMED, UNTIMED = {'default', 'cpus_low', 'shared_memory_low'}, {'api_too_old', 'release_unsound'}
# Variables that torchrun 2.x sets in each process of one node.
TORCHRUN = {'MASTER_ADDR': '127.0.0.1', 'MASTER_PORT': '29500', 'WORLD_SIZE': '2', 'LOCAL_WORLD_SIZE': '2', 'RANK': '%r', 'LOCAL_RANK': '%l',
            'GROUP_RANK': '0', 'ROLE_RANK': '%r', 'ROLE_NAME': 'default', 'ROLE_WORLD_SIZE': '2', 'TORCHELASTIC_RUN_ID': 'none',
            'TORCHELASTIC_RESTART_COUNT': '0', 'TORCHELASTIC_MAX_RESTARTS': '0', 'OMP_NUM_THREADS': '1'}


def blocks(text):
    return [re.sub(r'^   ', '', block, flags=re.MULTILINE) for block in re.findall(r'^ *```\n(.*?)^ *```', text, re.DOTALL | re.MULTILINE)]


def exports(block):
    return dict(re.findall(r'^export (\w+)=(.*?)(?:\s+#.*)?$', block, re.MULTILINE))


def documented_environment():
    [block] = [block for block in blocks(README) if 'torchrun' in block]
    return exports(block)


def form_by_name():
    """The variables that work with every release, in an environment without LD_LIBRARY_PATH."""
    [block] = [block for block in blocks(PYTORCH) if block.startswith('export NCCL_PROFILER_PLUGIN=libnccl')]
    return {name: re.sub(r'\$\{LD_LIBRARY_PATH:.*\}', '', value) for name, value in exports(block).items()}


def releases():
    """(NCCL's number, whether kernels are timed, whether it loads a plugin by its path) of each torch that has a profiler."""
    rows = re.findall(r'^\| [\d., ]+ \| (2)\.(\d+)\.(\d+) \| (.*) \| (yes|\*\*no\*\*) \|$', PYTORCH, re.MULTILINE)
    return [(int(major) * 10000 + int(minor) * 100 + int(patch), 'between nodes' not in measured, by_path == 'yes')
            for major, minor, patch, measured, by_path in rows]


def what_is_missing():
    """Why this machine cannot have the documented paths, or None."""
    if os.geteuid() != 0:
        return 'needs root, to mount'
    with tempfile.TemporaryDirectory(dir='/dev/shm') as scratch:
        probe = subprocess.run(['unshare', '--mount', 'sh', '-ec', NAMESPACE, 'sh', scratch, 'true'], capture_output=True, text=True)
    return f'no namespaces or overlays here: {probe.stderr.strip()}' if probe.returncode else None


# /run and /dev/shm are empty as after a boot, except for the scratch folder $1, and /usr/lib takes a folder that is not there outside.
NAMESPACE = '''mount --make-rprivate /; mount --bind "$1" /mnt; mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /dev/shm
mkdir "$1"; mount --bind /mnt "$1"; mkdir -p "$1/upper" "$1/work"
mount -t overlay -o "lowerdir=/usr/lib,upperdir=$1/upper,workdir=$1/work" overlay /usr/lib; shift; exec "$@"'''


class Documents(unittest.TestCase):
    def test_the_script_has_five_lines_of_python(self):
        [script] = [block for block in blocks(README) if block.startswith('import os, time, torch')]
        self.assertEqual(5, len(script.splitlines()))
        compile(script, 'all_reduce.py', 'exec')

    def test_the_promise_is_ten_seconds(self):
        self.assertIn('Within ten seconds of the first collective', README)

    def test_the_table_has_a_release_without_paths(self):
        self.assertIn((22703, False, False), releases())
        self.assertGreaterEqual(len(releases()), 5)


@unittest.skipIf(what_is_missing(), what_is_missing())
class Pytorch(ProcessTest):
    def setUp(self):
        super().setUp()
        self.environment = documented_environment()
        library = self.environment['NCCL_PROFILER_PLUGIN']
        [steps] = [block for block in blocks(README) if block.startswith('tools/install-dependencies')]
        self.assertIn(f'install -D bazel-bin/plugin/libnccl-profiler-exporter.so {library}\n', steps)
        [directory] = re.findall(r'^(install -d .*)$', steps, re.MULTILINE)
        self.node = self.start(['unshare', '--mount', '--kill-child', 'sh', '-ec', NAMESPACE, 'sh', self.root, 'sh', '-ec',
                                f'install -D {PLUGIN} {library}; {directory}; echo ready; exec sleep 600'])
        self.eventually(lambda: 'ready' in self.node.text(), self.node.text)
        daemon = self.start(self.on_node([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}']))
        self.eventually(lambda: 'listens at' in daemon.text(), daemon.text)

    def on_node(self, command):
        return ['nsenter', f'--mount=/proc/{self.node.pid}/ns/mnt', '--', *command]

    def start_job(self, environment, version=22809):
        variables = {'PATH': '/usr/bin:/bin', **environment}
        per_rank = [part for name, value in TORCHRUN.items() for part in ('--env', f'{name}={value}')]
        return self.start(self.on_node(
            ['setpriv', f'--reuid={JOB_USER}', f'--regid={JOB_USER}', '--clear-groups', '--no-new-privs', '--',
             'env', '-i', *(f'{name}={value}' for name, value in variables.items()), self.root / 'nccl-sim', '--layout', 'dp', '--ranks-per-node', '2',
             '--pace', 'real', '--rate', '10', '--duration', '600', '--no-comm-names', '--nccl-debug', environment.get('NCCL_DEBUG', 'none').lower(),
             '--nccl-version', version, '--api-version', API_OF_MINOR[version // 100 % 100], *per_rank]))

    def get(self, path):
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f'http://127.0.0.1:{self.port}{path}', timeout=10) as page:
            return page.read().decode()

    def metrics(self):
        return self.get('/metrics')

    def operations(self):
        return sum(float(line.rsplit(' ', 1)[1]) for line in self.metrics().splitlines()
                   if line.startswith('nccl_collective_operations_total{') and 'rank="0"' in line and 'collective="AllReduce"' in line)

    def inflight(self):
        return subprocess.run(self.on_node([self.root / 'nccl-exporter', 'inflight']), capture_output=True, text=True).stdout

    def timing_reasons(self):
        return {rank['timing_reason'] for communicator in json.loads(self.get('/api/v1/node'))['communicators']
                for rank in communicator['local_ranks'] if rank['alive']}

    def live_segments(self):
        return int(re.search(r'^nccl_exporter_segments{state="live"} (\d+)', self.metrics(), re.MULTILINE)[1])

    def test_the_job_is_seen_in_time_where_the_readme_says(self):
        job = self.start_job(self.environment)
        self.eventually(lambda: self.operations() > 0, job.text, PROMISED_SECONDS)
        self.assertRegex(job.text(), r'INFO: nccl-exporter [\d.]+: segment /run/nccl-exporter/')
        self.eventually(lambda: '2 of 2 ranks here' in self.inflight(), self.inflight, PROMISED_SECONDS)
        before = self.operations()
        self.eventually(lambda: self.operations() > before, self.metrics, PROMISED_SECONDS)

    def test_torchruns_variables_are_labels(self):
        job = self.start_job(self.environment)
        self.eventually(lambda: 'global_rank="1"' in self.metrics(), job.text, PROMISED_SECONDS)
        [line] = [line for line in self.metrics().splitlines() if line.startswith('nccl_rank_info{') and 'global_rank="1"' in line]
        [example] = [block for block in blocks(PYTORCH) if block.startswith('nccl_rank_info{')]
        self.assertRegex(line, '.*'.join(map(re.escape, re.split(r',?\.\.\.,?', example.strip()))))
        self.assertIn('comm_name=""', line)

    def test_each_torchs_nccl_takes_the_forms_of_the_table(self):
        forms = {'by name': {**self.environment, **form_by_name()}, 'by path': self.environment}
        for version, is_timed, takes_path in [*releases(), *((version, False, True) for version in OLD_RELEASES)]:
            for name, environment in list(forms.items())[:1 + takes_path]:
                with self.subTest(version=version, form=name):
                    job = self.start_job(environment, version)
                    try:
                        self.eventually(lambda: self.live_segments() == 2, job.text, PROMISED_SECONDS)
                        self.eventually(lambda: self.timing_reasons() and self.timing_reasons() <= (TIMED if is_timed else UNTIMED),
                                        lambda: self.get('/api/v1/node'), PROMISED_SECONDS)
                        self.assertIn(f'nccl_version="{version // 10000}.{version // 100 % 100}.{version % 100}"', self.metrics())
                    finally:
                        os.killpg(job.pid, signal.SIGKILL)
                        job.wait()
                    self.eventually(lambda: self.live_segments() == 0, self.metrics)

    def test_a_path_gives_no_segment_where_the_table_says_so(self):
        job = self.start_job(self.environment, 22703)
        self.eventually(lambda: 'no profiler plugin' in job.text(), job.text)
        self.assertNotIn('nccl_version="2.27.3"', self.metrics())


if __name__ == '__main__':
    report.main()
