#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Real stores take what `nccl-exporter otlp` pushes: each series has the name, labels and value that a scrape of the daemon stores.
VictoriaMetrics comes by tools/fetch-prometheus; without it the tests are skipped. Debian builds Prometheus without OTLP, so that its
tests want another one: --test_env=NCCL_EXPORTER_OTLP_PROMETHEUS=FILE, 2.47 or later."""
import json
import os
import pathlib
import subprocess
import sys
import time
import urllib.error
import urllib.parse

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer', 'tests/system/otlp')]
import report
from processes import free_port
from pushing import OPENER, PushTest

CACHE = pathlib.Path('/var/cache/nccl-exporter/prometheus')
GENERATE_RULES = pathlib.Path('deploy/prometheus/generate-rules').resolve()
TIME_SCALE = 15  # of all durations of the rules
GLOBAL = 'global: {scrape_interval: 1s, evaluation_interval: 1s}\n'
PROMETHEUS = pathlib.Path('/usr/bin/prometheus')
FEDERATE = '''
rule_files: ['%s']
scrape_configs:
- {job_name: victoria, honor_labels: true, metrics_path: /federate, params: {'match[]': ['{__name__=~"nccl_.+"}'], max_lookback: [4s]},
   static_configs: [{targets: ['127.0.0.1:%d']}]}
'''
SCRAPE = '''
scrape_configs:
- {job_name: scraped, scrape_interval: 1s, static_configs: [{targets: ['127.0.0.1:%d'], labels: {instance: node-7}}]}
'''
# Labels that say where a series comes from: of a scrape, and of the resource in VictoriaMetrics.
OF_THE_SOURCE = {'job', 'instance', *(name.replace('.', mark) for mark in '._' for name in ('service.name', 'service.instance.id', 'host.name'))}
# Values of the daemon itself differ from one scrape to the next.
OF_RANKS = ('nccl_collective_', 'nccl_api_', 'nccl_rank_', 'nccl_communicator_')


class Store(PushTest):
    def start_store(self, program, port, command, ready):
        if not program.exists():
            self.skipTest(f'{program} is missing: tools/fetch-prometheus')
        self.store_port, self.address = port, f'http://127.0.0.1:{port}'
        store = self.start([program, *command])
        self.eventually(lambda: self.answers(ready) or store.poll() is not None, store.text)
        if store.poll() is not None and '--web.enable-otlp-receiver' in store.text():
            self.skipTest(f'{program} has no OTLP')
        self.assertIsNone(store.poll(), store.text())
        return store

    def answers(self, path):
        try:
            return OPENER.open(self.address + path, timeout=10).status == 200
        except OSError:
            return False

    def start_prometheus(self, program, *flags):
        port = free_port()
        prometheus = self.start_store(program, port, [f'--config.file={self.root}/prometheus.yml', f'--storage.tsdb.path={self.root}/prometheus',
                                                      f'--web.listen-address=127.0.0.1:{port}', '--query.lookback-delta=4s', *flags], '/-/ready')
        return prometheus

    def start_victoria(self, *flags):
        port = free_port()
        self.start_store(CACHE / 'victoria-metrics-sid/usr/bin/victoria-metrics', port,
                         [f'-storageDataPath={self.root}/victoria', f'-httpListenAddr=127.0.0.1:{port}', '-search.latencyOffset=1ms',
                          '-memory.allowedPercent=10', f'-promscrape.config={self.root}/prometheus.yml', '-promscrape.config.strictParse=false', *flags],
                         '/health')

    def configure(self, text):
        (self.root / 'prometheus.yml').write_text(text)

    def query(self, expression, moment=None):
        arguments = {'query': expression, 'nocache': 1, **({'time': moment} if moment else {})}
        try:
            with OPENER.open(f'{self.address}/api/v1/query?' + urllib.parse.urlencode(arguments), timeout=60) as page:
                return json.load(page)['data']['result']
        except urllib.error.HTTPError as wrong:
            self.fail(wrong.read().decode())

    def series(self, selector):
        """Values by name and labels. Bounds are compared as numbers: releases spell them differently."""
        found = {}
        for series in self.query(selector):
            labels = {name: float(text) if name == 'le' else text for name, text in series['metric'].items() if name not in OF_THE_SOURCE}
            key = labels.pop('__name__'), frozenset(labels.items())
            self.assertNotIn(key, found)
            found[key] = float(series['value'][1])
        return found

    def expect_equal(self, pushed, scraped):
        self.assertGreater(len(scraped), 300)
        own = {name for name, _ in pushed} & {'nccl_otlp_requests_total', 'nccl_otlp_failed_tries_total', 'nccl_otlp_rejected_points_total', 'nccl_otlp_queue_bytes'}
        self.assertEqual(4, len(own))
        pushed = {key: value for key, value in pushed.items() if key[0] not in own}
        self.assertEqual(set(), set(pushed) ^ set(scraped))
        for key, value in scraped.items():
            if key[0].startswith(OF_RANKS):
                self.assertEqual(value, pushed[key], key)
        self.expect_truth(pushed)

    def start_receiver(self, *features):
        program = pathlib.Path(os.environ.get('NCCL_EXPORTER_OTLP_PROMETHEUS', CACHE / 'sid/usr/bin/prometheus'))
        version = subprocess.run([program, '--version'], capture_output=True, text=True).stdout if program.exists() else ''
        flag = '--enable-feature=otlp-write-receiver' if 'version 2.' in version else '--web.enable-otlp-receiver'
        return self.start_prometheus(program, flag, *features)

    def store_in_prometheus(self, *flags, features=()):
        self.configure(GLOBAL + SCRAPE % self.port)
        store = self.start_receiver(*features)
        process = self.push(f'{self.address}/api/v1/otlp', '--instance=node-7', *flags, interval='1s')
        self.eventually(lambda: len(self.query('nccl_otlp_requests_total{job="nccl-exporter",instance="node-7"}')) == 3
                        and self.query('nccl_api_calls_total{job="scraped"}'), process.text)
        time.sleep(3)
        self.assertEqual('', process.text())
        self.assertNotIn('out of order', store.text().lower())

    def test_prometheus_stores_what_it_scrapes(self):
        self.store_in_prometheus()
        self.expect_equal(self.series('{job="nccl-exporter",__name__=~"nccl_.+"}'), self.series('{job="scraped",__name__=~"nccl_.+"}'))

    def test_prometheus_stores_native_histograms(self):
        self.store_in_prometheus('--histograms=exponential', features=['--enable-feature=native-histograms'])

        def counts(expression):
            return {frozenset(series['metric'].items()): float(series['value'][1]) for series in self.query(f'sum without (__name__, job) ({expression})')}
        family = 'nccl_collective_duration_seconds'
        scraped = counts(f'{family}_count{{job="scraped"}}') or counts(f'histogram_count({family}{{job="scraped"}})')
        self.assertEqual(2, len(scraped))
        self.assertEqual(scraped, counts(f'histogram_count({family}{{job="nccl-exporter"}})'))

    def stored_by_victoria(self, *flags, of_victoria=()):
        self.configure(SCRAPE % self.port)
        self.start_victoria(*of_victoria)
        process = self.push(f'{self.address}/opentelemetry', '--instance=node-7', *flags, interval='1s')
        self.eventually(lambda: len(self.query('nccl_otlp_requests_total')) == 3 and self.query('nccl_api_calls_total{job="scraped"}'), process.text)
        time.sleep(3)
        self.assertEqual('', process.text())
        return self.series('{job!="scraped",__name__=~"nccl_.+"}'), self.series('{job="scraped",__name__=~"nccl_.+"}')

    def test_victoria_metrics_stores_what_it_scrapes(self):
        self.expect_equal(*self.stored_by_victoria())

    def test_victoria_metrics_has_exponential_histograms_by_vmrange(self):
        pushed, _ = self.stored_by_victoria('--histograms=exponential')
        self.expect_truth(pushed)
        family, by_rank = 'nccl_collective_duration_seconds', {}
        for (name, labels), value in pushed.items():
            if name == f'{family}_bucket':
                self.assertIn('vmrange', dict(labels))
                self.assertNotIn('le', dict(labels))
                by_rank.setdefault(dict(labels)['rank'], []).append(value)
        self.assertEqual({dict(labels)['rank']: value for (name, labels), value in pushed.items() if name == f'{family}_count'},
                         {rank: sum(values) for rank, values in by_rank.items()})

    def test_the_translation_of_prometheus_changes_no_name(self):
        self.expect_equal(*self.stored_by_victoria(of_victoria=['-opentelemetry.usePrometheusNaming']))

    def write_rules(self):
        subprocess.run([sys.executable, GENERATE_RULES, f'--time-scale={TIME_SCALE}', '--output', self.root], check=True)
        return self.root / 'nccl-exporter.rules.yml'

    def test_the_shipped_rules_fire_on_series_that_prometheus_takes(self):
        self.configure(GLOBAL + f'rule_files: [{self.write_rules()}]\n')
        prometheus = self.start_receiver()
        process = self.push(f'{self.address}/api/v1/otlp', interval='1s')
        self.expect_culprit(process, self.start_hang(), prometheus)

    def test_the_shipped_rules_fire_on_series_that_victoria_metrics_takes(self):
        self.configure('scrape_configs: []')
        self.start_victoria('-opentelemetry.usePrometheusNaming')
        process = self.push(f'{self.address}/opentelemetry', interval='1s')
        job = self.start_hang()
        self.configure(GLOBAL + FEDERATE % (self.write_rules(), self.store_port))
        self.expect_culprit(process, job, self.start_prometheus(PROMETHEUS))

    def expect_culprit(self, *programs):
        hang = 'ALERTS{alertname="NCCLHangCulprit",alertstate="firing"}'
        self.eventually(lambda: self.query(hang), lambda: ''.join(program.text() for program in programs), seconds=120)
        [alert] = [series['metric'] for series in self.query(hang)]
        self.assertEqual(('4711', '1'), (alert['nccl_job'], alert['global_rank']))

    def start_hang(self):
        return self.start([self.root / 'nccl-sim', '--plugin', self.root / 'libnccl-profiler-exporter.so', '--segment-dir', self.segments,
                           '--ranks-per-node', '4', '--layout', 'dp', '--pace', 'real', '--duration', '300', '--rate', '20', '--slurm-job-id', '4711',
                           '--incident', 'missing-call:rank=1,from=20', '--env', 'NCCL_ALLGATHERV_ENABLE=0', '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on'])


if __name__ == '__main__':
    report.main()
