# SPDX-License-Identifier: Apache-2.0
"""Whether other stores answer the rules as Debian 12's Prometheus does. It evaluates the rules over the played cluster, each group at its own interval, and
writes what they record. Then each store gets the same samples, those of the recorded series included, and answers the expression of each rule at the same
moments. So a difference belongs to the rule in which it is shown, and not to one before it. The samples are written at once, so the 45 minutes of the play
take about six minutes on 2 cores. Exit code 1 if a store gives another answer, or if the program of a store is missing.
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
PROMETHEUS = {'trixie': CACHE / 'trixie/usr/bin/prometheus', 'sid': CACHE / 'sid/usr/bin/prometheus'}
INTERVAL = 15  # seconds between scrapes, and between evaluations of the groups that state no interval
MINUTES = 45  # the bandwidth baseline needs 36: 20 values, one a minute, the last of them 15 minutes old
MOST_MINUTES = 55  # Prometheus takes no samples that are older than its newest by an hour
EVALUATION_OFFSET = 5  # seconds from the scrapes to the evaluations, so that no sample lies on the edge of a window
JITTER = 1e-9  # relative difference that different orders of a sum leave
QUERY = ['--query.max-samples=500000000']


class Store(servers.Process):
    """A store that takes remote write and answers queries."""

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
    """Encoded labels and samples of each series of the play, as Prometheus would have scraped them."""
    cluster = played_cluster.Cluster(nodes, began, families=families)
    series, last = collections.defaultdict(bytearray), {}
    for step in range(minutes * 60 // INTERVAL):
        moment = began + step * INTERVAL
        for node in range(nodes):
            page = cluster.page(node, moment)
            current = {}
            for line in (page[0].splitlines() if page else ()):
                text, _, value = line.rpartition(' ')
                current[text, node] = float(value)
            current['up', node] = float(page is not None)
            ended = dict.fromkeys(last.get(node, {}).keys() - current.keys())
            for known, value in (current | ended).items():
                series[known] += remote_write.sample_of(round(1000 * moment), value)
            last[node] = current
    for (text, node), samples in series.items():
        name, _, inside = text.partition('{')
        labels = dict(re.findall(r'(\w+)="([^"]*)"', inside)) | {'__name__': name, 'job': 'nccl-exporter', 'instance': f'node{node}:9828'}
        yield remote_write.labels_of(labels), bytes(samples)


def evaluated_at(step, group, seconds_between):
    """Whether the group is evaluated at this one of the steps of INTERVAL."""
    return step * INTERVAL % seconds_between.get(group, INTERVAL) == 0


def record(reference, rules, moments, seconds_between):
    """Evaluates the rules as Prometheus does, one after the other, each group at its own interval; what they record, by encoded labels."""
    recorded, last = collections.defaultdict(bytearray), {}
    for step, moment in enumerate(moments):
        for number, rule in enumerate(rules):
            if rule.is_alert or not evaluated_at(step, rule.group, seconds_between):
                continue
            current = {}
            for labels, value in reference.answer(rule.expression, moment).items():
                current[remote_write.labels_of(dict(labels) | rule.labels | {'__name__': rule.name})] = value
            ended = {labels: None for labels in last.get(number, {}) if labels not in current}
            now = [(labels, remote_write.sample_of(round(1000 * moment), value)) for labels, value in (current | ended).items()]
            reference.write(now)
            for labels, sample in now:
                recorded[labels] += sample
            last[number] = current
    return [(labels, bytes(samples)) for labels, samples in recorded.items()]


def print_alerts(rules, expected, moments, truth):
    """Alerts whose expressions hold, without their `for`; what is false or missing here would be so in each store."""
    names = [rule.name for rule in rules if rule.is_alert]
    holding = lambda moment: [dict(labels) | {'alertname': rule.name}
                              for number, rule in enumerate(rules) if rule.is_alert for labels in expected[number, moment]]
    due, false = servers.due_and_false(holding(moments[0]), truth)
    print('alerts at the last moment: ' + ', '.join(f'{name} {named} of {count}' for name, (named, count) in due.items())
          + ''.join(f'; false: {servers.alert_text(labels)}' for labels in false))
    ever = {labels['alertname'] for moment in moments for labels in holding(moment)}
    print('alerts whose expressions hold at some moment: ' + ', '.join(name for name in names if name in ever))
    print('alerts whose expressions never hold: ' + ', '.join(name for name in names if name not in ever), flush=True)


def print_silent(rules, expected, moments):
    silent = [rule.name for number, rule in enumerate(rules) if not rule.is_alert and not any(expected[number, moment] for moment in moments)]
    print(f'{len(silent)} recorded rules without series here: ' + ', '.join(silent), flush=True)


class Difference:
    """Difference of one rule in one store, over all moments."""

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
    silent = sum(not differences[number].series and number not in different for number in range(len(rules)))
    print(f'{name}: {len(rules) - silent - len(different)} of {len(rules) - silent} rules with series answer the same; {silent} rules have no series in either',
          flush=True)
    for number in different:
        print(f'  {rules[number].name}: {differences[number].text()}')
    return not different


def main():
    parser = argparse.ArgumentParser(prog='same-answers', description=__doc__)
    parser.add_argument('--nodes', type=int, default=played_cluster.LEAST_NODES)
    parser.add_argument('--minutes', type=int, default=MINUTES, help=f'of the play, at most {MOST_MINUTES}; below 36 there is no bandwidth baseline')
    parser.add_argument('--every', type=int, default=5, help='evaluations between two moments that are compared; with an odd number the series of groups that '
                        'are evaluated seldom are of each age')
    parser.add_argument('--rules', type=pathlib.Path, default=RULES)
    parser.add_argument('--stores', nargs='+', choices=[*PROMETHEUS, 'victoria-metrics'], default=[*PROMETHEUS, 'victoria-metrics'],
                        help='to compare, by the folders of tools/fetch-prometheus; all by default')
    parser.add_argument('--victoria-metrics', type=pathlib.Path, default=VICTORIA_METRICS, help='program')
    options = parser.parse_args()
    if options.minutes > MOST_MINUTES:
        parser.error(f'--minutes must be at most {MOST_MINUTES}')
    stores = {name: (PrometheusStore, program) for name, program in PROMETHEUS.items()} | {'victoria-metrics': (VictoriaStore, options.victoria_metrics)}
    stores = {name: stores[name] for name in options.stores}
    absent = [f'{name} ({program})' for name, (_, program) in stores.items() if not os.access(program, os.X_OK)]
    if absent:
        raise SystemExit(f'no program of {", ".join(absent)}: run tools/fetch-prometheus, or choose others with --stores')
    text = options.rules.read_text()
    rules = list(servers.rules_of(text))
    began = round(time.time() - options.minutes * 60 - 60)
    moments = [began + EVALUATION_OFFSET + step * INTERVAL for step in range(options.minutes * 60 // INTERVAL)]
    is_same = True
    with tempfile.TemporaryDirectory(prefix='same-answers-') as scratch:
        raw = list(played_series(options.nodes, began, options.minutes, servers.families_read(text)))
        with PrometheusStore(f'{scratch}/reference', servers.PROMETHEUS) as reference:
            reference.write(raw)
            recorded = record(reference, rules, moments, servers.group_intervals(text))
            compared = moments[::-options.every]
            expected = {(number, moment): reference.answer(rule.expression, moment) for moment in compared for number, rule in enumerate(rules)}
        print(f'{len(raw)} series, {len(recorded)} recorded, {len(rules)} rules at {len(compared)} moments of {options.minutes} minutes')
        print_alerts(rules, expected, compared, played_cluster.Cluster(options.nodes, began).truth(compared[0] - began))
        print_silent(rules, expected, compared)
        for name, (kind, program) in stores.items():
            with kind(f'{scratch}/{name}', program) as store:
                store.write(raw)
                store.write(recorded)
                store.flush()
                is_same &= compare(name, store, rules, expected)
    sys.exit(not is_same)


if __name__ == '__main__':
    main()
