# SPDX-License-Identifier: Apache-2.0
"""Whether other stores answer the rules as Debian 12's Prometheus does. It evaluates the rules over the played cluster, and writes what they record. Then each
store gets the same samples, those of the recorded series included, and answers the expression of each rule at the same moments. So a difference belongs to
the rule in which it is shown, and not to one before it.
"""
import argparse
import collections
import math
import os
import pathlib
import re
import sys
import tempfile
import time
import urllib.request

import played_cluster
import remote_write
import servers

RULES = pathlib.Path(__file__).resolve().parents[2] / 'deploy/prometheus/nccl-exporter.rules.yml'
CACHE = pathlib.Path('/var/cache/nccl-exporter/prometheus')  # of tools/fetch-prometheus
VICTORIA_METRICS = CACHE / 'victoria-metrics/usr/bin/victoria-metrics'
PROMETHEUS = {'Prometheus of Debian 13': CACHE / 'trixie/usr/bin/prometheus', 'Prometheus of Debian unstable': CACHE / 'sid/usr/bin/prometheus'}
INTERVAL = 15  # seconds
EVALUATION_OFFSET = 5  # seconds from the scrapes to the evaluations, so that no sample lies on the edge of a window
JITTER = 1e-9  # relative difference that different orders of a sum leave
QUERY = ['--query.max-samples=500000000']


class Store(servers.Process):
    """What takes remote write and answers queries."""

    def write(self, series):
        for body in remote_write.requests_of(series):
            servers.OPENER.open(urllib.request.Request(f'{self.address}/api/v1/write', body, remote_write.HEADERS), timeout=60).close()

    def answer(self, expression, moment):
        """Value by labels, without the name."""
        result = self.get('/api/v1/query', query=expression, time=moment, nocache=1)['data']['result']
        return {tuple(sorted((name, value) for name, value in series['metric'].items() if name != '__name__')): float(series['value'][1]) for series in result}

    def flush(self):
        pass


class PrometheusStore(Store, servers.Prometheus):
    def __init__(self, directory, program):
        super().__init__(directory, {}, f'--storage.tsdb.path={directory}/data', '--web.enable-remote-write-receiver', *QUERY, program=program)


class VictoriaStore(Store):
    """Its instant queries look back by 5 minutes, as those of vmalert do; its answers are not cached, because the samples are written late."""
    READY_PATH = '/health'

    def __init__(self, directory, program):
        port = servers.free_port()
        super().__init__(directory, [program, f'-storageDataPath={directory}/data', f'-httpListenAddr=127.0.0.1:{port}', '-search.disableCache',
                                     '-search.latencyOffset=1ms', '-memory.allowedPercent=20'], port)

    def flush(self):
        servers.OPENER.open(f'{self.address}/internal/force_flush', timeout=60).close()


def played_series(nodes, began, minutes, families):
    """Samples of the play by labels, as Prometheus would have scraped them: time in ms and value, None where a series ends."""
    cluster = played_cluster.Cluster(nodes, began, families=families)
    series, last, parsed = collections.defaultdict(list), {}, {}
    for step in range(minutes * 60 // INTERVAL):
        moment = began + step * INTERVAL
        for node in range(nodes):
            page = cluster.page(node, moment)
            current = {}
            for line in (page[0].splitlines() if page else ()):
                text, _, value = line.rpartition(' ')
                current[text, node] = float(value)
            current['up', node] = float(page is not None)
            for known in last.get(node, {}).keys() - current.keys():
                series[known].append((round(1000 * moment), None))
            for known, value in current.items():
                series[known].append((round(1000 * moment), value))
            last[node] = current
    for (text, node), samples in series.items():
        name, _, inside = text.partition('{')
        labels = dict(re.findall(r'(\w+)="([^"]*)"', inside)) | {'__name__': name, 'job': 'nccl-exporter', 'instance': f'node{node}:9828'}
        yield remote_write.labels_of(labels), b''.join(remote_write.sample_of(*sample) for sample in samples)


def record(reference, rules, moments):
    """Evaluates the rules as Prometheus does, one after the other; what they record, by encoded labels."""
    recorded, last = collections.defaultdict(list), {}
    for moment in moments:
        for number, rule in enumerate(rules):
            if rule.is_alert:
                continue
            current = {}
            for labels, value in reference.answer(rule.expression, moment).items():
                current[remote_write.labels_of(dict(labels) | rule.labels | {'__name__': rule.name})] = value
            ended = {labels: None for labels in last.get(number, {}) if labels not in current}
            now = [(labels, remote_write.sample_of(round(1000 * moment), value)) for labels, value in (current | ended).items()]
            reference.write(now)
            for labels, sample in now:
                recorded[labels].append(sample)
            last[number] = current
    return [(labels, b''.join(samples)) for labels, samples in recorded.items()]


def print_alerts(rules, expected, moment, truth):
    """Alerts whose expressions hold at the moment; what is false or missing here would be so in each store."""
    holding = [dict(labels) | {'alertname': rule.name} for number, rule in enumerate(rules) if rule.is_alert for labels in expected[number, moment]]
    due, others = servers.due_and_false(holding, truth)
    print('alerts at the last moment: ' + ', '.join(f'{name} {named} of {count}' + (f' and {false}, which are false' if false else '')
                                                    for name, (named, count, false) in due.items())
          + ''.join(f', {name} {count}' for name, count in sorted(others.items())), flush=True)


class Difference:
    """Of one rule in one store, over all moments."""

    def __init__(self):
        self.series = self.missing = self.extra = self.unequal = 0
        self.largest = 0.0

    def add(self, expected, found):
        self.series += len(expected)
        self.missing += len(expected.keys() - found.keys())
        self.extra += len(found.keys() - expected.keys())
        for labels in expected.keys() & found.keys():
            a, b = expected[labels], found[labels]
            distance = 0 if a == b or math.isnan(a) and math.isnan(b) else abs(a - b) / max(abs(a), abs(b))
            if not distance <= JITTER:
                self.unequal += 1
                self.largest = max(self.largest, distance)

    def is_none(self):
        return not (self.missing or self.extra or self.unequal)

    def text(self):
        parts = [f'{self.series} series']
        parts += [f'{self.missing} missing'] if self.missing else []
        parts += [f'{self.extra} more'] if self.extra else []
        parts += [f'{self.unequal} with other values, by up to {100 * self.largest:.2g} %'] if self.unequal else []
        return ', '.join(parts)


def compare(name, store, rules, expected):
    """Prints the rules that differ; whether there are none."""
    differences = collections.defaultdict(Difference)
    for (number, moment), answer in expected.items():
        differences[number].add(answer, store.answer(rules[number].expression, moment))
    different = [number for number in range(len(rules)) if not differences[number].is_none()]
    silent = sum(not difference.series for difference in differences.values())
    print(f'{name}: {len(rules) - len(different)} of {len(rules)} rules answer the same ({silent} had no series in this play)', flush=True)
    for number in different:
        print(f'  {rules[number].name}: {differences[number].text()}')
    return not different


def main():
    parser = argparse.ArgumentParser(prog='same-answers', description=__doc__)
    parser.add_argument('--nodes', type=int, default=played_cluster.LEAST_NODES)
    parser.add_argument('--minutes', type=int, default=15)
    parser.add_argument('--every', type=int, default=4, help='evaluations between two moments that are compared')
    parser.add_argument('--rules', type=pathlib.Path, default=RULES)
    parser.add_argument('--victoria-metrics', type=pathlib.Path, default=VICTORIA_METRICS, help='program')
    options = parser.parse_args()
    rules = list(servers.rules_of(options.rules.read_text()))
    began = round(time.time() - options.minutes * 60 - 60)
    moments = [began + EVALUATION_OFFSET + step * INTERVAL for step in range(options.minutes * 60 // INTERVAL)]
    stores = {name: (PrometheusStore, program) for name, program in PROMETHEUS.items()} | {'VictoriaMetrics': (VictoriaStore, options.victoria_metrics)}
    is_same = True
    with tempfile.TemporaryDirectory(prefix='same-answers-') as scratch:
        raw = list(played_series(options.nodes, began, options.minutes, servers.families_read(options.rules.read_text())))
        with PrometheusStore(f'{scratch}/reference', servers.PROMETHEUS) as reference:
            reference.write(raw)
            recorded = record(reference, rules, moments)
            compared = moments[::-options.every]
            expected = {(number, moment): reference.answer(rule.expression, moment) for moment in compared for number, rule in enumerate(rules)}
        print(f'{len(raw)} series, {len(recorded)} recorded, {len(rules)} rules at {len(compared)} moments', flush=True)
        print_alerts(rules, expected, compared[0], played_cluster.Cluster(options.nodes, began).truth(compared[0] - began))
        for name, (kind, program) in stores.items():
            if not os.access(program, os.X_OK):
                print(f'{name}: skipped, because tools/fetch-prometheus has not fetched {program}')
                continue
            with kind(f'{scratch}/{name.replace(" ", "-")}', program) as store:
                store.write(raw)
                store.write(recorded)
                store.flush()
                is_same &= compare(name, store, rules, expected)
    sys.exit(not is_same)


if __name__ == '__main__':
    main()
