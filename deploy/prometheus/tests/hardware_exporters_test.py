#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The suspects of a late rank with what other exporters say of its GPU and adapter: a page of dcgm-exporter with known faults, and Debian's node_exporter on
a played sysfs, scraped at each interval."""
import contextlib
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

HERE = pathlib.Path(os.path.abspath('deploy/prometheus'))
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'tests')]
import report
from cluster import READ_BY_RULES
from suspect_jobs import FAULTS, LATE, NODE_COUNTERS, SINCE, SuspectJob, straggler, suspect

RULES = HERE / 'nccl-exporter.rules.yml'
ADAPTERS, START_SECONDS = 4, 20
FILES = {'node_infiniband_symbol_error_total': 'symbol_error', 'node_infiniband_port_errors_received_total': 'port_rcv_errors',
         'node_infiniband_link_error_recovery_total': 'link_error_recovery', 'node_infiniband_link_downed_total': 'link_downed',
         'node_infiniband_port_transmit_wait_total': 'port_xmit_wait'}
SAMPLE = re.compile(r'(\w+)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
DCGM_PAGE = HERE / 'tests/dcgm_exporter.prom'


def samples_of(page):
    for name, labels, value in (match.groups() for match in map(SAMPLE.match, page.splitlines()) if match):
        yield name, dict(LABEL.findall(labels or '')), float(value)


class NodeExporter:
    """A running one whose adapters have the counters that were written last."""

    def __init__(self, stack):
        self.root = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for adapter in range(ADAPTERS):
            device = self.root / f'class/infiniband/mlx5_{adapter}'
            port = device / 'ports/1'
            (port / 'counters').mkdir(parents=True)
            (port / 'hw_counters').mkdir()
            for file, text in {'board_id': 'MT_0000000838', 'fw_ver': '28.39.1002', 'hca_type': 'MT4129'}.items():
                (device / file).write_text(text)
            for file, text in {'state': '4: ACTIVE', 'phys_state': '5: LinkUp', 'rate': '400 Gb/sec (4X NDR)'}.items():
                (port / file).write_text(text)
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            self.url = f'http://127.0.0.1:{probe.getsockname()[1]}/metrics'
        process = subprocess.Popen(['prometheus-node-exporter', f'--path.sysfs={self.root}', '--collector.disable-defaults', '--collector.infiniband',
                                    '--collector.uname', '--web.listen-address', self.url.split('/')[2]], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(lambda: (process.kill(), process.wait()))

    def write(self, adapter, name, count):
        (self.root / f'class/infiniband/mlx5_{adapter}/ports/1/counters' / FILES[name]).write_text(f'{int(count)}\n')

    def scrape(self):
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(self.url, timeout=10) as answer:
                    text = answer.read().decode()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        return samples_of(text)


class ScrapedJob(SuspectJob):
    """As SuspectJob, with the answers of a real node_exporter in place of played ones."""

    def __init__(self, exporter, cause=None, is_late=True):
        super().__init__(is_late=is_late, exporters=('dcgm',))
        self.exporter, self.names = exporter, set()
        self.faults = FAULTS[cause] if cause else {}

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for node in sorted({self.node(rank) for rank in self.ranks}):
            for rank in (rank for rank in self.ranks if self.node(rank) == node):
                for name, rate in NODE_COUNTERS.items():
                    self.exporter.write(rank % ADAPTERS, name, self.count(name, rank, t, rate))
            for name, labels, value in self.exporter.scrape():
                self.names.add(name)
                if name == 'node_uname_info':  # both nodes are this one
                    labels['nodename'] = f'gpu-node-{node}'
                if READ_BY_RULES.fullmatch(name):
                    self.put(table, index, name, labels | {'job': 'node', 'instance': f'10.0.0.{node}:9100'}, value)


class JobWithDcgm(SuspectJob):
    """As SuspectJob, with the page of a dcgm-exporter for each node. A fault is in the lines of the late rank's GPU."""

    def __init__(self, faults, is_late=True):
        super().__init__(is_late=is_late, exporters=('node',))
        self.faults_of_page = faults  # value by name, and what a second adds to it
        self.page = list(samples_of(DCGM_PAGE.read_text()))
        uuids = {int(labels['gpu']): labels['UUID'] for _, labels, _ in self.page}
        self.gpu_uuid = lambda rank: self.on_node(uuids[rank % 4], self.node(rank))

    @staticmethod
    def on_node(uuid, node):
        return f'{uuid[:-1]}{node}'

    def add_targets(self, table, index, t):
        super().add_targets(table, index, t)
        for node in sorted({self.node(rank) for rank in self.ranks}):
            for name, labels, value in self.page:
                uuid = self.on_node(labels['UUID'], node)
                if uuid == self.gpu_uuid(LATE) and name in self.faults_of_page and t > SINCE:
                    at_first, a_second = self.faults_of_page[name]
                    value = at_first + a_second * (t - SINCE)
                # As Prometheus stores them without honor_labels.
                own = {f'exported_{key}' if key in ('namespace', 'pod', 'container') else key: label for key, label in labels.items()}
                if READ_BY_RULES.fullmatch(name):
                    self.put(table, index, name, own | {'UUID': uuid, 'Hostname': f'gpu-node-{node}', 'job': 'dcgm', 'instance': f'10.0.0.{node}:9400'}, value)


class Played(unittest.TestCase):
    def fired(self, job, expected):
        samples = sorted('{' + ','.join(f'{key}="{value}"' for key, value in labels.items()) + '}' for labels in expected)
        firing = 'count by (alertname, nccl_job, uid, comm_name, rank, hostname, gpu, cause) (ALERTS{alertstate="firing"})'
        test = {'interval': '15s', 'input_series': job.series(READ_BY_RULES), 'promql_expr_test': [
            {'expr': firing, 'eval_time': '16m', 'exp_samples': [{'labels': labels, 'value': 1} for labels in samples]}]}
        groups = re.findall(r'^ *- name: (.*)$', RULES.read_text(), re.M)
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, 'case.json')
            path.write_text(json.dumps({'rule_files': [str(RULES.resolve())], 'evaluation_interval': '15s', 'group_eval_order': groups, 'tests': [test]}))
            played = subprocess.run(['promtool', 'test', 'rules', path], capture_output=True, text=True)
        self.assertEqual(played.returncode, 0, played.stdout + played.stderr)


class DcgmExporter(Played):
    FAULTS = {
        'gpu_clock': {'DCGM_FI_DEV_SM_CLOCK': (1215, 0)},
        'gpu_throttled': {'DCGM_FI_DEV_CLOCKS_EVENT_REASONS': (4 | 64, 0)},
        'gpu_xid': {'DCGM_FI_DEV_XID_ERRORS': (79, 0)},
    }
    NVLINK = [f'DCGM_FI_DEV_NVLINK_{kind}_ERROR_COUNT_TOTAL' for kind in ('CRC_DATA', 'REPLAY', 'RECOVERY')]

    def test_names_the_gpu_of_the_late_rank(self):
        for cause, faults in [*self.FAULTS.items(), *(('nvlink_errors', {name: (0, 0.5)}) for name in self.NVLINK)]:
            with self.subTest(cause, faults=faults):
                self.fired(JobWithDcgm(faults), straggler() + [suspect(cause)])

    def test_names_all_faults_of_a_gpu(self):
        faults = {name: fault for of_cause in self.FAULTS.values() for name, fault in of_cause.items()}
        self.fired(JobWithDcgm(faults), straggler() + [suspect(cause) for cause in self.FAULTS])

    def test_says_nothing_without_a_fault(self):
        self.fired(JobWithDcgm({}), straggler())

    def test_says_nothing_where_nobody_is_late(self):
        self.fired(JobWithDcgm(self.FAULTS['gpu_clock'] | self.FAULTS['gpu_xid'], is_late=False), [])


class RealNodeExporter(Played):
    def setUp(self):
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.exporter = NodeExporter(stack)

    def test_names_the_adapter_of_the_late_rank(self):
        for cause in ('adapter_errors', 'adapter_link_down', 'adapter_transmit_wait'):
            with self.subTest(cause):
                job = ScrapedJob(self.exporter, cause)
                self.fired(job, straggler() + [suspect(cause)])
                self.assertLessEqual(set(NODE_COUNTERS) | {'node_uname_info'}, job.names)

    def test_says_nothing_without_a_fault(self):
        self.fired(ScrapedJob(self.exporter), straggler())

    def test_says_nothing_where_nobody_is_late(self):
        self.fired(ScrapedJob(self.exporter, 'adapter_errors', is_late=False), [])


if __name__ == '__main__':
    report.main()
