#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus with the limits of labels that stores have takes the series of ranks in the fullest environments."""
import json
import os
import pathlib
import sys
import unittest
import urllib.parse
import urllib.request

sys.path[:0] = [str(pathlib.Path(path).resolve()) for path in ('deploy/tests', 'tests/system')]
import report
from one_daemon import OneDaemon

PROMETHEUS = os.environ.get('NCCL_EXPORTER_PROMETHEUS', '/usr/bin/prometheus')
# Mimir and Cortex refuse series with more.
LABEL_LIMIT = 30
TORCHRUN = {'TORCHELASTIC_RUN_ID': 'run-7', 'LOCAL_WORLD_SIZE': '2', 'GROUP_RANK': '0', 'WORLD_SIZE': '2'}
SLURM_ARRAY = {'SLURM_JOB_ID': '4712', 'SLURM_JOB_NAME': 'llm', 'SLURM_JOB_ACCOUNT': 'research', 'SLURM_JOB_PARTITION': 'gpu', 'SLURM_JOB_USER': 'alice',
               'SLURM_ARRAY_JOB_ID': '4700', 'SLURM_ARRAY_TASK_ID': '12', 'SLURM_STEP_ID': '0', 'SLURM_STEP_NUM_TASKS': '2', 'SLURM_STEP_TASKS_PER_NODE': '2'}
POD = {'POD_NAMESPACE': 'research', 'POD_NAME': 'trainer-0', 'POD_UID': '0f3c', 'CONTAINER_NAME': 'main', 'NODE_NAME': 'gpu-node-42',
       'NCCL_EXPORTER_JOB': 'trainer'}
MIG = {'CUDA_VISIBLE_DEVICES': 'MIG-6b5e1d4c-0000-0000-0000-000000000001'}
LABELS = {'NCCL_EXPORTER_LABELS': ','.join(f'own_{name}={name}' for name in 'abcdefgh')}
ENVIRONMENTS = {'torchrun under a Slurm array': TORCHRUN | SLURM_ARRAY, 'a pod with MIG': TORCHRUN | POD | MIG,
                'Ray': POD | {'RANK': '1', 'WORLD_SIZE': '4'}, 'all at once': TORCHRUN | SLURM_ARRAY | POD | MIG | LABELS}


@unittest.skipUnless(os.path.exists(PROMETHEUS), 'Prometheus is not installed')
class LabelLimit(OneDaemon):
    def start_prometheus(self, **limits):
        port = self.free_port()
        directory = pathlib.Path(self.segments)
        (directory / f'{port}.yml').write_text(json.dumps({'global': {'scrape_interval': '1s'}, 'scrape_configs': [
            {'job_name': 'nccl-exporter', 'honor_labels': True, 'static_configs': [{'targets': [f'127.0.0.1:{self.port}']}], **limits}]}))
        self.start([PROMETHEUS, f'--config.file={directory / str(port)}.yml', f'--storage.tsdb.path={directory / str(port)}',
                    f'--web.listen-address=127.0.0.1:{port}', '--log.level=warn'])
        return port

    def ask(self, port, path):
        try:
            with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(f'http://127.0.0.1:{port}{path}', timeout=10) as answer:
                return json.load(answer)['data']
        except OSError:
            return {}

    def target(self, port):
        """Health of the target and the fault of its last scrape; empty before the first."""
        found = [(each['health'], each['lastError']) for each in self.ask(port, '/api/v1/targets').get('activeTargets', [])]
        return '' if not found or found[0][0] == 'unknown' else found[0]

    def start_rank(self, environment):
        """A rank of a job that has two, which another node plays."""
        options = [option for name, value in environment.items() for option in ('--env', f'{name}={value}')]
        self.start_job('--layout', 'mixed', '--nodes', '2', '--ranks-per-node', '1', '--node', '0', '--rate', '5', '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on',
                       *(() if 'RANK' in environment else ('--env', 'RANK=0', '--env', 'LOCAL_RANK=0')), *options)

    def test_the_fullest_environments_are_scraped(self):
        self.start_daemon('--metrics.labels-everywhere')
        for environment in ENVIRONMENTS.values():
            self.start_rank(environment)
        self.eventually(lambda: len(self.samples('nccl_rank_info', rank='0')) >= len(ENVIRONMENTS))
        ranks = len(self.samples('nccl_rank_info'))
        port, strict = self.start_prometheus(label_limit=LABEL_LIMIT), self.start_prometheus(label_limit=12)
        self.eventually(lambda: self.target(port))
        self.eventually(lambda: self.ask(port, '/api/v1/query?' + urllib.parse.urlencode({'query': f'count(nccl_rank_info) >= {ranks}'})).get('result'))
        self.assertEqual(self.target(port), ('up', ''))
        health, fault = self.eventually(lambda: self.target(strict))
        self.assertEqual(health, 'down')
        self.assertIn('label_limit', fault)


if __name__ == '__main__':
    report.main()
