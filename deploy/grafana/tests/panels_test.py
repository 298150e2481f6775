#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Queries of panels, answered by promtool for jobs that are played: processes of pods that have one pid, and GPUs that hang."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = pathlib.Path(os.path.abspath('deploy/grafana'))
RULES = HERE.parent / 'prometheus/nccl-exporter.rules.yml'
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'prometheus/tests'), str(HERE.parent / 'tests')]
import dashboards
import report
from cluster import Cluster
from jobs import InPods, data_parallel

DASHBOARDS = dashboards.read(HERE / 'dashboards')
MINUTES = 12
DEAD, STOPPED = 6, 7  # ranks in pods
BUILT_IN = {'__rate_interval': '4m', '__range': '10m'}
ALL = dict.fromkeys(('cluster', 'namespace', 'nccl_job', 'uid', 'hostname', 'gpu_uuid', 'pid', 'comm'), '.*')


def query(title, number=0, **variables):
    """A query of the panel, with all values of the variables that are not given."""
    panel, = [panel for dashboard in DASHBOARDS.values() for panel in dashboards.panels(dashboard) if panel['title'] == title]
    return dashboards.substituted(panel['targets'][number]['expr'], BUILT_IN | ALL | variables)


def complaint(cluster, *answers):
    """Complaints of promtool at the last minute. Each answer is a query, with labels and values in thousandths as they must come out."""
    tests = [{'expr': f'round(1000 * ({text}))', 'eval_time': f'{MINUTES}m', 'exp_samples': [
        {'labels': '{' + ','.join(f'{key}="{label}"' for key, label in labels.items()) + '}', 'value': value} for labels, value in samples]} for text, samples in answers]
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        json.dump({'rule_files': [str(RULES.resolve())], 'evaluation_interval': '15s', 'tests': [
            {'interval': '15s', 'input_series': cluster.series(), 'promql_expr_test': tests}],
            'group_eval_order': re.findall(r'^ *- name: (.*)$', RULES.read_text(), re.M)}, file)
        file.flush()
        done = subprocess.run(['promtool', 'test', 'rules', file.name], capture_output=True, text=True)
    return '' if done.returncode == 0 else done.stdout + done.stderr


class LossyPods(InPods):
    """4 GPUs of one process, and 4 pods on another node. Each process drops as many events in a second as its GPU's number."""

    def __init__(self):
        super().__init__(2, 4, MINUTES)
        self.add('dp', list(self.ranks))
        self.alive = lambda rank, t: rank != DEAD or t < 60
        self.served = lambda rank, t: True
        self.halted = lambda rank, t: rank == STOPPED

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for rank in self.ranks:
            self.put(table, index, 'nccl_process_events_dropped_total', self.identity(rank) | {'reason': 'abandoned'}, t * (rank + 1))
            self.put(table, index, 'nccl_process_cpu_wait_seconds_total', self.identity(rank), t * rank / 100)


def of_pod(rank):
    return {'hostname': 'gpu-node-1', 'gpu_uuid': f'GPU-{rank}', 'pid': '1'}


class Pods(unittest.TestCase):
    """Regression: processes of a job and node with one pid were mixed up."""
    maxDiff = None

    def test_the_state_of_a_process_is_its_own(self):
        job = LossyPods()
        self.assertEqual(complaint(job, *(
            (query(title, **of_pod(rank)), [({}, 1000 * value)])
            for rank in range(4, 8) for title, value in (('Alive', rank != DEAD), ('Stopped', rank == STOPPED)))), '')

    def test_losses_and_waits_of_a_process_are_its_own(self):
        job = LossyPods()
        self.assertEqual(complaint(job, *(
            answer for rank in (4, 5) for answer in (
                (query('Lost or untimed, by cause', **of_pod(rank)), [({'reason': 'abandoned'}, 1000 * (rank + 1)), ({}, 0)]),
                (query('Waits for a CPU', **of_pod(rank)), [({}, 10 * rank)])))), '')

    def test_the_processes_of_a_node_are_counted(self):
        nodes = [({'hostname': f'gpu-node-{node}', 'instance': f'node{node}:9828', 'nccl_job': '42', 'uid': '1000', 'timing_source': 'kernel'}, count)
                 for node, count in ((0, 1000), (1, 4000))]
        self.assertEqual(complaint(LossyPods(), (query('Nodes'), nodes)), '')


class LostToWaiting(unittest.TestCase):
    """Regression: GPUs that hang were no GPUs of the job, which lost 150 % of them, or an unknown share."""

    def test_of_two_of_three_groups(self):
        job = Cluster(3, 4, MINUTES)
        for node in range(3):
            group = job.add(f'tp{node}', [4 * node + i for i in range(4)])
            if node < 2:
                job.hang(group, 300, group.members[:3], stops_all=False)
        self.assertEqual(complaint(job, (query('Lost to waiting'), [({}, 500)])), '')

    def test_of_a_whole_job(self):
        job = data_parallel(MINUTES)
        job.hang(job.communicators[0], 300, [0, 1, 2, 3, 4, 5, 7])
        self.assertEqual(complaint(job, (query('Lost to waiting'), [({}, 875)])), '')


class Grouping(unittest.TestCase):
    def test_by_pid_is_by_pod_and_container(self):
        """In panels, rules and texts of alerts. A rank is known by its communicator, too."""
        seen = 0
        rules = [rule for group in yaml.safe_load(RULES.read_text())['groups'] for rule in group['rules']]
        expressions = [query.expression for dashboard in DASHBOARDS.values() for query in dashboards.queries(dashboard) if ' / variable ' not in query.place]
        expressions += [text for rule in rules for text in (rule['expr'], *rule.get('annotations', {}).values())]
        for expression in expressions:
            for labels in re.findall(r'\b(?:by|on) \(([^)]*)\)', expression):
                labels = set(labels.split(', '))
                if 'pid' in labels and not {'comm', 'rank'} <= labels:
                    self.assertLessEqual({'pod', 'container'}, labels, expression)
                    seen += 1
            for matchers in re.findall(r'\{([^{}]*\bpid=%q[^{}]*)\}', expression):
                self.assertIn('container=%q', matchers)
                seen += 1
        self.assertGreater(seen, 30)


if __name__ == '__main__':
    report.main()
