#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The example configurations: read by promtool or by the Prometheus that they are for, and in accord with the manifests."""
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

import yaml

DEPLOY = pathlib.Path(os.path.abspath('deploy'))
sys.path.insert(0, str(DEPLOY / 'tests'))
import report

EXAMPLES = DEPLOY / 'prometheus/examples'
# Prometheus 3.5, by tools/fetch-prometheus; it comes without promtool, so it is started.
PROMETHEUS_3 = '/var/cache/nccl-exporter/prometheus/sid/usr/bin/prometheus'
START_SECONDS = 30


def configuration(name):
    return yaml.safe_load((EXAMPLES / name).read_text())


def checked(text, *options):
    """Output of promtool for a configuration that stands beside the examples' files; empty if it finds nothing."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / 'examples').symlink_to(EXAMPLES)
        text = text.replace('../nccl-exporter.rules.yml', str(DEPLOY / 'prometheus/nccl-exporter.rules.yml')).replace('nodes.json',
            str(EXAMPLES / 'nodes.json'))
        (pathlib.Path(folder) / 'prometheus.yml').write_text(text)
        done = subprocess.run(['promtool', 'check', 'config', *options, f'{folder}/prometheus.yml'], capture_output=True, text=True)
    return '' if done.returncode == 0 else done.stdout + done.stderr


def started(directory, name, *flags):
    """The log of a real Prometheus that starts with the example, up to the moment it is ready or gives up."""
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        port = probe.getsockname()[1]
    log = pathlib.Path(directory) / 'log'
    with log.open('w') as output:
        server = subprocess.Popen([PROMETHEUS_3, f'--config.file={EXAMPLES / name}', f'--web.listen-address=127.0.0.1:{port}', *flags],
                                  stdout=output, stderr=output)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        deadline = time.monotonic() + START_SECONDS
        while server.poll() is None and time.monotonic() < deadline:
            try:
                opener.open(f'http://127.0.0.1:{port}/-/ready', timeout=5).close()
                return server.poll() is None, log.read_text()
            except OSError:
                time.sleep(0.1)
        return False, log.read_text()
    finally:
        server.kill()
        server.wait()


class Examples(unittest.TestCase):
    def test_every_example_is_tried_here(self):
        self.assertEqual({path.name for path in EXAMPLES.iterdir()},
                         {'prometheus.yml', 'prometheus-agent.yml', 'prometheus-native.yml', 'prometheus-kubernetes.yml', 'prometheus-parts.yml', 'nodes.json',
                          'alertmanager.yml'})

    def test_promtool_takes_the_server_and_the_agent(self):
        self.assertEqual(checked((EXAMPLES / 'prometheus.yml').read_text()), '')
        self.assertEqual(checked((EXAMPLES / 'prometheus-parts.yml').read_text()), '')
        self.assertEqual(checked((EXAMPLES / 'prometheus-agent.yml').read_text(), '--agent'), '')

    def test_promtool_takes_the_one_for_kubernetes_but_for_its_discovery(self):
        """Debian's Prometheus is built without kubernetes_sd."""
        text = (EXAMPLES / 'prometheus-kubernetes.yml').read_text()
        without, count = re.subn(r'    kubernetes_sd_configs:\n(      .*\n)+', '    file_sd_configs:\n      - files: [nodes.json]\n', text)
        self.assertEqual(count, 2)
        self.assertEqual(checked(without), '')

    def test_the_one_for_kubernetes_finds_what_the_manifests_make(self):
        node, sidecar = configuration('prometheus-kubernetes.yml')['scrape_configs']
        self.assertEqual([config['kubernetes_sd_configs'][0]['role'] for config in (node, sidecar)], ['pod', 'pod'])
        daemonset = yaml.safe_load((DEPLOY / 'kubernetes/node/daemonset.yaml').read_text())
        self.assertEqual(node['kubernetes_sd_configs'][0]['namespaces']['names'], [daemonset['metadata']['namespace']])
        job = yaml.safe_load((DEPLOY / 'kubernetes/sidecar/job.yaml').read_text())
        for config, template in ((node, daemonset['spec']['template']), (sidecar, job['spec']['template'])):
            keep = config['relabel_configs'][0]
            label, port = keep['regex'].split(';')
            ports = {p['name'] for c in template['spec']['containers'] + template['spec']['initContainers'] for p in c.get('ports', [])}
            self.assertIn(port, ports)
            meta = {re.sub(r'\W', '_', f'__meta_kubernetes_pod_label_{key}'): value for key, value in template['metadata']['labels'].items()}
            self.assertEqual(meta[keep['source_labels'][0]], label)
            self.assertEqual(keep['source_labels'][1], '__meta_kubernetes_pod_container_port_name')

    def test_the_jobs_labels_win_everywhere(self):
        for path in EXAMPLES.glob('prometheus*.yml'):
            self.assertEqual({config['honor_labels'] for config in configuration(path.name)['scrape_configs']}, {True}, path.name)

    @unittest.skipUnless(os.access(PROMETHEUS_3, os.X_OK), f'{PROMETHEUS_3} is not there: tools/fetch-prometheus')
    def test_prometheus_3_starts_with_native_histograms_and_as_an_agent(self):
        for name, flags in (('prometheus-native.yml', ['--enable-feature=native-histograms', '--storage.tsdb.path=data']),
                            ('prometheus.yml', ['--storage.tsdb.path=data']), ('prometheus-agent.yml', ['--agent', '--storage.agent.path=data'])):
            with tempfile.TemporaryDirectory() as folder:
                is_ready, log = started(folder, name, *[flag.replace('=data', f'={folder}/data') for flag in flags])
            self.assertTrue(is_ready, f'{name}: {log}')

    @unittest.skipUnless(os.access(PROMETHEUS_3, os.X_OK), f'{PROMETHEUS_3} is not there: tools/fetch-prometheus')
    def test_prometheus_3_finds_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            is_ready, log = started(folder, 'nodes.json', f'--storage.tsdb.path={folder}/data')
        self.assertFalse(is_ready)
        self.assertIn('parsing YAML', log)


if __name__ == '__main__':
    report.main()
