#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The queries of docs/queries.md, read from the page, answered by promtool for a job of known speed and for the same job in a hang.
Also the query of docs/network-time.md that scales timed bytes to all, and those of docs/inference.md."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = pathlib.Path(os.path.abspath('deploy/prometheus'))
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'tests')]
import report
from cluster import TRANSFER, Cluster
from network_jobs import HEALTHY, TIMED, NetworkJob

PAGE, NETWORK_PAGE, INFERENCE_PAGE = (pathlib.Path(os.path.abspath(f'docs/{name}.md')) for name in ('queries', 'network-time', 'inference'))
RULES = HERE / 'nccl-exporter.rules.yml'
NODES, GPUS = 4, 4
MINUTES = 15
LATE, LATENESS = 6, 0.2  # global rank, and its share of the time
SIZE, RATE = 16777216, 10  # of collectives, by Cluster
P2P_SIZE = 1048576  # of sends and receives, of which each rank has RATE in a second
HANG_BEGINS = 600  # seconds
IDLE_SINCE = 300  # seconds, longer ago than a rate looks back
# Shares of operations up to a bound, of small ones and of large ones.
DURATIONS = {'0': {'0.01': 1, '0.02': 1, '0.04': 1, '+Inf': 1}, str(SIZE): {'0.01': 0, '0.02': 0.98, '0.04': 1, '+Inf': 1}}
MISSING_CALL = 6  # global rank
TENSOR, DATA, PIPELINE = ([f'{kind}{i}' for i in range(count)] for kind, count in (('tp', NODES), ('dp', GPUS), ('pp', 8)))


class Job(Cluster):
    """3d parallel: tensor within a node, data across nodes, and pairs of a pipeline. With all families that the queries read.

    As of the daemon, a communicator has a series of each size of its collectives, and none of sends and receives if it makes none.
    """

    def __init__(self, pipelines=len(PIPELINE)):
        super().__init__(NODES, GPUS, MINUTES)
        for node, name in enumerate(TENSOR):
            self.add(name, [GPUS * node + i for i in range(GPUS)])
        for i, name in enumerate(DATA):
            self.add(name, [GPUS * node + i for node in range(NODES)])
        for i, name in enumerate(PIPELINE[:pipelines]):
            self.add(name, [i, i + 8], collective=None)

    def state(self, communicator, rank, t, count, labels):
        yield from super().state(communicator, rank, t, count, labels)
        if communicator.collective:
            for name in ('operations', 'bytes', 'timed_operations', 'busy_seconds', 'bus_bytes'):
                yield f'nccl_collective_{name}_total', labels | {'collective': communicator.collective, 'size': '0'}, 0
        nodes = len({self.node(member) for member in communicator.members})
        yield 'nccl_communicator_info', labels | {'nnodes': str(nodes)}, 1
        if not communicator.collective:
            for direction in ('send', 'recv'):
                yield f'nccl_p2p_{direction}_bytes_total', labels, count['operations'] / 2 * P2P_SIZE
        if communicator.collective:
            for size, buckets in DURATIONS.items():
                for bound, share in buckets.items():
                    yield ('nccl_collective_duration_seconds_bucket',
                           labels | {'collective': communicator.collective, 'size': size, 'le': bound}, count['operations'] / 2 * share)

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for rank in self.ranks:
            table.setdefault(f'DCGM_FI_DEV_SM_CLOCK{{UUID="GPU-{rank}"}}', {})[index] = 900 if rank == LATE else 1980


class ServingJob(Job):
    """Beside NIXL's telemetry of each process, in which LATE has errors and slow transfers."""

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for rank in self.ranks:
            own = {'job': 'nixl', 'instance': f'node{self.node(rank)}:9091', 'hostname': f'gpu-node-{self.node(rank)}', 'pid': str(1000 + rank)}
            self.put(table, index, 'agent_tx_bytes_total', own, t * (rank + 1))
            self.put(table, index, 'agent_errors_total', own, t if rank == LATE else 0)
            for bound in (1e5, 1e7, '+Inf'):
                self.put(table, index, 'agent_xfer_time_us_bucket', own | {'le': str(bound)}, t if rank != LATE or bound != 1e5 else 0)


def late():
    job = Job()
    job.late = lambda rank, t: LATENESS if rank == LATE else 0
    return job


def hanging():
    job = Job()
    tensor, data = job.communicators[:NODES], job.communicators[NODES:NODES + GPUS]
    job.hang(tensor[1], HANG_BEGINS, [4, 5, 7])
    for i in range(GPUS):
        job.hang(data[i], HANG_BEGINS, [GPUS * node + i for node in (0, 2, 3)])
    return job


def over_a_slow_way():
    """One communicator has become idle, and one has all operations outside of the windows. Another user has a communicator of the same id, in which
    half of the bus bytes stay within the node, and half of the operations are timed."""
    job, copy = NetworkJob(NODES, 2, MINUTES), NetworkJob(NODES, 2, MINUTES)
    job.wire = copy.wire = lambda rank, t: 4 if rank == 3 else 1
    idle, outside = (job.add(name, list(job.ranks)) for name in ('idle', 'outside'))
    job.runs = lambda communicator, t: communicator is not idle or t < IDLE_SINCE
    job.is_in_windows = lambda communicator, t: communicator is not outside or t < IDLE_SINCE
    copy.uid = '1001'
    copy.crossing = copy.timed_share = 0.5
    job.copies.append(copy)
    return job


def bytes_per_second(job):
    """Bytes that a rank sends in the first communicator."""
    return TIMED / job.timed_share * job.operation_bytes


def shares_of_sends(job):
    """By state, of all ranks."""
    waits = [job.sends(rank, 0) for rank in job.ranks]
    total = sum(map(sum, waits))
    return [({'comm_name': 'dp', 'state': state}, sum(times[i] for times in waits) / total) for i, state in enumerate(('gpu', 'peer', 'network'))]


def identity(name):
    return next(communicator.id for communicator in Job().communicators if communicator.name == name)


def of_kind(names, value, **labels):
    return [(labels | {'comm_name': name}, value) for name in names]


def of_rank(job, rank):
    """Labels of the rules by global rank."""
    return {'global_rank': str(rank), 'gpu': str(rank % GPUS), 'uid': job.uid} | job.job | job.target(rank)


def of_gpu(job, rank):
    return {'instance': job.target(rank)['instance'], 'global_rank': str(rank), 'gpu': str(rank % GPUS)}


def mean_of(name, waits):
    """Seconds of an operation: the mean of the ranks."""
    of_ranks = [wait for (communicator, _), wait in waits.items() if communicator.name == name]
    return sum(of_ranks) / len(of_ranks) / RATE


def answers():
    """By question, one for each of its queries: a job, and labels and values as they must come out."""
    busy, hung, few_pipelines, slow_way = late(), hanging(), Job(pipelines=2), over_a_slow_way()
    in_pipelines = {member for communicator in few_pipelines.communicators if not communicator.collective for member in communicator.members}
    waits = busy.waits(MINUTES * 60)
    collectives = TENSOR + DATA
    kind = {'collective': 'AllReduce', 'size': str(SIZE)}
    busy_of = {rank: sum(wait for (_, other), wait in waits.items() if other == rank) for rank in busy.ranks}
    bytes_of_kind = NODES * GPUS * RATE * SIZE
    culprit = {'global_rank': str(MISSING_CALL), 'hostname': 'gpu-node-1', 'gpu': '2'}
    return {
        'How fast is each communicator?': [(busy, [(kind | {'comm': identity(name), 'comm_name': name}, RATE * SIZE / TRANSFER) for name in collectives])],
        'How long do operations take?': [
            (busy, [(kind | {'comm_name': name}, mean_of(name, waits)) for name in collectives]),
            (busy, of_kind(collectives, TRANSFER / RATE, **kind)),
            (busy, [({'collective': 'AllReduce'}, 0.02)]),
            (busy, [({'size': '0'}, 0.0099), ({'size': str(SIZE)}, 0.03)])],
        'Which share of the time is each rank in NCCL?': [(busy, [(of_rank(busy, rank), share) for rank, share in busy_of.items()])],
        'Which rank is slow?': [(busy, [({'global_rank': str(LATE), 'hostname': 'gpu-node-1', 'gpu': '2'}, LATENESS)])],
        'Which communicators are tensor, data or pipeline parallel?': [
            (busy, [({'comm': identity(name), 'comm_name': name}, GPUS) for name in TENSOR]),
            (busy, [({'comm': identity(name), 'comm_name': name, 'nnodes': str(NODES)}, NODES) for name in DATA]),
            (busy, [({'comm': identity(name), 'comm_name': name}, 2) for name in PIPELINE])],
        'How much crosses the network?': [(busy, [({'nnodes': '1'}, bytes_of_kind), ({'nnodes': str(NODES)}, bytes_of_kind)])],
        'What do sends to other nodes wait for?': [
            (slow_way, shares_of_sends(slow_way)),
            (slow_way, [({'instance': slow_way.target(rank)['instance'], 'gpu': str(rank % 2)}, 1 / HEALTHY / slow_way.wire(rank, 0))
                        for rank in slow_way.ranks]),
            (slow_way, [({'instance': f'node{node}:9828'}, slow_way.ranks_per_node * sum(map(bytes_per_second, [slow_way, *slow_way.copies])))
                        for node in range(NODES)])],
        'How many operations per second does each rank run?': [
            (few_pipelines, [(of_gpu(busy, rank), (3 if rank in in_pipelines else 2) * RATE) for rank in busy.ranks])],
        'Does global rank 5 hang?': [(hung, [({'global_rank': '5', 'comm_name': 'tp1'}, 1)]), (hung, [(culprit, 1)])],
        'Since when?': [(hung, [({'global_rank': '5', 'comm_name': 'tp1', 'function': 'AllReduce'}, MINUTES * 60 - HANG_BEGINS)])],
        'How do the ranks compare in bytes per second?': [
            (busy, [(of_gpu(busy, rank), 2 * RATE * SIZE + RATE * P2P_SIZE) for rank in busy.ranks]),
            (busy, [({'instance': f'node{node}:9828', 'gpu': str(gpu)}, 2 * RATE * SIZE) for node in range(NODES) for gpu in range(GPUS)])],
        'And the GPU\'s clock?': [(busy, [({'UUID': f'GPU-{LATE}', 'gpu_uuid': f'GPU-{LATE}'}, 900)])],
    }


def queries(text):
    """Queries by the heading above them."""
    return {section.partition('\n')[0]: re.findall(r'```promql\n(.*?)\n```', section, re.S) for section in re.split(r'^## ', text, flags=re.M)[1:]}


def sample(labels, value):
    return {'labels': '{' + ','.join(f'{key}="{text}"' for key, text in labels.items()) + '}', 'value': value}


def complaint(job, checks):
    """Complaints of promtool. Values are compared as integers of six digits."""
    tests = []
    for query, expected in checks:
        scale = 10.0 ** (6 - len(str(int(max(value for _, value in expected)))))
        tests.append({'expr': f'round(({query}) * {scale})', 'eval_time': f'{MINUTES}m',
                      'exp_samples': [sample(labels, round(value * scale)) for labels, value in expected]})
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        groups = re.findall(r'^ *- name: (.*)$', RULES.read_text(), re.M)
        json.dump({'rule_files': [str(RULES.resolve())], 'evaluation_interval': '15s', 'group_eval_order': groups, 'tests': [
            {'interval': '15s', 'input_series': job.series(), 'promql_expr_test': tests}]}, file)
        file.flush()
        done = subprocess.run(['promtool', 'test', 'rules', file.name], capture_output=True, text=True)
    return '' if done.returncode == 0 else done.stdout + done.stderr


class Queries(unittest.TestCase):
    maxDiff = None

    def test_every_question_has_its_answers(self):
        self.assertEqual({question: len(found) for question, found in queries(PAGE.read_text()).items()},
                         {question: len(right) for question, right in answers().items()})

    def test_the_answers_are_right(self):
        found = queries(PAGE.read_text())
        by_job = {}
        for question, right in answers().items():
            for query, (job, expected) in zip(found[question], right):
                by_job.setdefault(job, []).append((query, expected))
        self.assertEqual(len(by_job), 4)
        for job, checks in by_job.items():
            self.assertEqual(complaint(job, checks), '')

    def test_timed_bytes_are_scaled_to_all_bytes(self):
        query, = queries(NETWORK_PAGE.read_text())['All bytes']
        job = over_a_slow_way()
        expected = [({key: of_user.labels(of_user.communicators[0], rank)[key] for key in ('instance', 'uid', 'comm', 'comm_name', 'rank', 'gpu')}
                     | {'direction': direction}, bytes_per_second(of_user))
                    for of_user in (job, *job.copies) for rank in job.ranks for direction in ('send', 'recv')]
        self.assertEqual(complaint(job, [(query, expected)]), '')

    def test_telemetry_of_nixl_has_the_ranks_of_its_processes(self):
        section = next(section for section in INFERENCE_PAGE.read_text().split('\n## ') if section.startswith('Metrics of NIXL'))
        blocks = dict(re.findall(r'```(promql|yaml)\n(.*?)\n```', section, re.S))
        errors, slow = (alert['expr'] for alert in yaml.safe_load(blocks['yaml']))
        job = ServingJob()
        rates = [({'hostname': f'gpu-node-{job.node(rank)}', 'pid': str(1000 + rank), 'comm_name': communicator.name, 'gpu_uuid': f'GPU-{rank}',
                   'rank': str(communicator.members.index(rank))}, rank + 1)
                 for communicator in job.communicators for rank in communicator.members]
        late_node = f'gpu-node-{job.node(LATE)}'
        self.assertEqual(complaint(job, [(blocks['promql'], rates), (f'count by (hostname, pid) ({errors})', [({'hostname': late_node, 'pid': str(1000 + LATE)}, 1)]),
                                         (f'count by (hostname) ({slow})', [({'hostname': late_node}, 1)])]), '')

    def test_a_wrong_query_is_found(self):
        self.assertIn('FAILED', complaint(late(), [('bottomk(1, sum by (global_rank) (rate(nccl_rank_kernel_seconds_total[1m])))', [({'global_rank': '7'}, 1)])]))


if __name__ == '__main__':
    report.main()
