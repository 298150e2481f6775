#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The example of Alertmanager: faults as the rules' cases have them are played to a real one, which must notify once of each.

All times are divided by SCALE. An Alertmanager per fault, and all at the same time.
"""
import collections
import concurrent.futures
import contextlib
import datetime
import http.server
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.request

HERE = pathlib.Path(os.path.abspath('deploy/prometheus'))
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'tests')]
import hang_cases
import network_cases
import quality_cases
import report
import straggler_cases
import suspect_cases

CONFIGURATION = (HERE / 'examples/alertmanager.yml').read_text()
RULES = (HERE / 'nccl-exporter.rules.yml').read_text()
ALERTMANAGER = '/usr/bin/prometheus-alertmanager'
SCALE = 30
# A step of a case is played no longer than this. In it each group of alerts is notified again if it has changed.
LONGEST_STEP_SECONDS = 480 / SCALE
UNIT_SECONDS = {'s': 1, 'm': 60, 'h': 3600}
START_SECONDS = 30

# Cases, and the alerts of which the one notification consists.
FAULTS = [
    (straggler_cases.of_a_late_rank_s_victims_in_other_communicators_none_is_named, {'NCCLStragglerRank'}),
    (straggler_cases.a_late_rank_is_named_by_arrivals_where_nothing_is_timed, {'NCCLLastArriver'}),
    (straggler_cases.a_late_node_is_named_where_its_ranks_share_a_communicator, {'NCCLStragglerNode'}),
    (straggler_cases.a_slow_link_is_told_by_bandwidth_alone, {'NCCLBandwidthDegraded'}),
    (network_cases.a_slow_link_with_less_bandwidth_is_told_by_both, {'NCCLSlowNetworkNode'}),
    (suspect_cases.two_causes_are_two_alerts, {'NCCLStragglerRank', 'NCCLStragglerSuspect'}),
    (hang_cases.of_the_ranks_behind_only_the_one_that_waits_for_nobody_is_named, {'NCCLHangCulprit'}),
    (hang_cases.a_killed_rank_is_named_until_the_job_has_ended, {'NCCLHangCulprit'}),
    (hang_cases.a_rank_in_another_call_is_named, {'NCCLHangMismatchedCall'}),
    (hang_cases.of_a_hang_between_stages_only_the_communicators_in_which_it_began_are_told, {'NCCLHangNobodyBehind'}),
    (hang_cases.of_a_node_that_is_gone_the_ranks_are_named, {'NCCLHangCulprit'}),
    (quality_cases.an_exporter_that_is_down_is_told_until_it_is_back_and_its_ranks_are_missing, {'NCCLExporterDown'}),
    (quality_cases.files_that_cannot_be_used_are_told_by_user_and_reason_until_they_are_gone, {'NCCLExporterSegmentsUnusable'}),
    (hang_cases.a_job_that_calls_nothing_for_long_is_told_as_information, {'NCCLJobStalledOutsideCollectives'}),
]


def scaled(configuration):
    return re.sub(r'\b(\d+)([smh])\b', lambda m: f'{round(int(m[1]) * UNIT_SECONDS[m[2]] * 1000 / SCALE)}ms', configuration)


def severity(name):
    return re.search(rf'alert: {name}\n(?:.*\n)*?    labels: {{severity: (\w+)}}', RULES)[1]


def whole(labels, cluster, minute):
    """An alert as Prometheus sends it: a case has only the labels by which it is recognised. One of a target is made for each that is not scraped."""
    name = labels['alertname']
    labels = {key: value for key, value in labels.items() if value} | {'severity': labels.get('severity', severity(name))}
    if 'rank' in labels:
        communicator = next(c for c in cluster.communicators if c.name == labels['comm_name'])
        rank = communicator.members[int(labels['rank'])]
        return [cluster.labels(communicator, rank) | {'hostname': f'gpu-node-{cluster.node(rank)}', 'gpu_uuid': f'GPU-{rank}', 'pid': str(1000 + rank),
                                                      'timing_source': cluster.source(rank)} | labels]
    if name in ('NCCLHangCulprit', 'NCCLStragglerSuspect'):
        rank = int(labels['hostname'].rpartition('-')[2]) * cluster.ranks_per_node + int(labels['gpu'])
        return [cluster.identity(rank) | {'gpu_uuid': f'GPU-{rank}'} | labels]
    if name == 'NCCLExporterDown':
        nodes = {cluster.node(rank) for rank in cluster.ranks}
        return [labels | {'job': 'nccl', 'instance': f'node{node}:9828'} for node in nodes if not cluster.scraped(node, minute * 60 - 60)]
    if 'hostname' in labels:
        return [labels | cluster.target(int(labels['hostname'].rpartition('-')[2]) * cluster.ranks_per_node)]
    if name.startswith('NCCLExporter'):
        return [labels | cluster.target(0)]
    return [labels]


class Receiver:
    """Keeps notifications of alerts that fire, by the path to which they come."""

    def __init__(self):
        self.received = received = collections.defaultdict(list)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                notification = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
                if notification['status'] == 'firing':
                    received[self.path.split('/')[1]].append(notification)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *args):
                pass

        self.server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def configuration(self, name, text):
        return text.replace('127.0.0.1:9000', f'127.0.0.1:{self.server.server_port}/{name}')


def free_port():
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextlib.contextmanager
def alertmanager(configuration):
    """Address of one that has started."""
    with tempfile.TemporaryDirectory() as folder:
        path, log = pathlib.Path(folder, 'alertmanager.yml'), pathlib.Path(folder, 'log')
        path.write_text(configuration)
        address = f'127.0.0.1:{free_port()}'
        with log.open('w') as output:
            process = subprocess.Popen([ALERTMANAGER, f'--config.file={path}', f'--storage.path={folder}/data', f'--web.listen-address={address}',
                                        '--cluster.listen-address='], stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + START_SECONDS
            while True:
                try:
                    OPENER.open(f'http://{address}/-/ready', timeout=5).close()
                    break
                except OSError:
                    if process.poll() is not None or time.monotonic() > deadline:
                        raise RuntimeError(log.read_text())
                    time.sleep(0.1)
            yield address
        finally:
            process.kill()
            process.wait()


def post(address, alerts, ends):
    body = json.dumps([{'labels': labels, 'endsAt': ends.isoformat()} for labels in alerts]).encode()
    request = urllib.request.Request(f'http://{address}/api/v2/alerts', body, {'Content-Type': 'application/json'})
    OPENER.open(request, timeout=30).close()


def play(case, configuration):
    """Sends the alerts of a case as they come and go, up to where the trouble ends."""
    cluster, expected = case()
    with alertmanager(configuration) as address:
        minutes = sorted(minute for minute, alerts in expected.items() if alerts)
        firing = []
        for minute, following in zip(minutes, minutes[1:] + [float('inf')]):
            before, firing = firing, [labels for alert in expected[minute] for labels in whole(alert, cluster, minute)]
            now = datetime.datetime.now(datetime.timezone.utc)
            post(address, [labels for labels in before if labels not in firing], now)
            post(address, firing, now + datetime.timedelta(hours=1))
            time.sleep(min((following - minute) * 60 / SCALE, LONGEST_STEP_SECONDS))


class Notifications(unittest.TestCase):
    def test_amtool_takes_the_example(self):
        done = subprocess.run(['amtool', 'check-config', HERE / 'examples/alertmanager.yml'], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_the_example_knows_all_alerts_and_no_other(self):
        alerts = set(re.findall(r'alert: (\w+)', RULES))
        named = set(re.findall(r'NCCL\w+', CONFIGURATION.replace('NCCLExporter(Down|SeriesDropped|SegmentsUnusable)',
                                                                  'NCCLExporterDown NCCLExporterSeriesDropped NCCLExporterSegmentsUnusable')))
        self.assertEqual(named - alerts, set())

    def test_processes_are_equal_by_their_pods_and_containers_too(self):
        """All of them may have pid 1. Regression: the culprit of a hang inhibited that another container of its pod was missing."""
        of_processes = [set(labels.split(', ')) for labels in re.findall(r'equal: \[(.*\bpid\b.*)\]', CONFIGURATION)]
        self.assertGreater(len(of_processes), 1)
        for labels in of_processes:
            self.assertLessEqual({'instance', 'pod', 'container'}, labels)

    def test_there_is_one_notification_per_fault(self):
        receiver = Receiver()
        with concurrent.futures.ThreadPoolExecutor(len(FAULTS)) as pool:
            played = [pool.submit(play, case, receiver.configuration(case.__name__, scaled(CONFIGURATION))) for case, _ in FAULTS]
        for future in played:
            future.result()
        for case, names in FAULTS:
            with self.subTest(case.__name__):
                notified = [{alert['labels']['alertname'] for alert in notification['alerts']} for notification in receiver.received[case.__name__]]
                self.assertEqual(notified, [names])


if __name__ == '__main__':
    report.main()
