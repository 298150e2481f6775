#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every expression of every dashboard and of the rules gets an answer from a real Prometheus that scrapes a cluster with faults: from one that takes alerts and
detail apart, the detail less often, with classic histograms, and from one that takes all at once, with native ones."""
import collections
import dataclasses
import itertools
import os
import pathlib
import re
import sys
import tempfile
import time
import unittest

sys.path[:0] = [os.path.abspath(path) for path in ('tests', 'deploy/grafana/tests', 'deploy/tests')]
import dashboards
import dashboards_cluster
import report

import yaml

DASHBOARDS = dashboards.read(pathlib.Path('deploy/grafana/dashboards'))
SECONDS = 100
DAEMON_DIES_AFTER = 25  # seconds; known for the rules' warm-up by then
POLL_SECONDS = 1
CANDIDATES_A_POLL = 6
RANGE_SECONDS = 40
PANEL_SECONDS = 20
STEP_SECONDS = 1


def times(query):
    """As Grafana sets them for this range, of a data source whose own interval is as it comes, all divided by the time scale."""
    rate_interval = dashboards.rate_interval_seconds(query, STEP_SECONDS * dashboards_cluster.TIME_SCALE) / dashboards_cluster.TIME_SCALE
    return {'__rate_interval': f'{rate_interval:.0f}s', '__interval': f'{STEP_SECONDS}s', '__range': f'{RANGE_SECONDS}s'}

# Rules and panels without an answer here, and the reason.
EMPTY = {
    'rule comm:nccl_timing_sources:count': 'no communicator of the cluster has two sources of durations',
    'rule NCCLExporterSeriesDropped (warning)': 'a daemon serves 20,000 series; the whole cluster has fewer',
}

# Rules and panels with an answer in some runs: proof by the last two evaluations, which are two seconds here; what processes wait for a late rank in
# their other communicators, which jitter decides; pipelines of two stages, which only hung jobs have, and their usual times; ranks that are late now
# and then; and ranks whose operations in flight are not
# known, when a question is asked between the end of their series and the next evaluation. Their cases are in deploy/prometheus/tests.
SOMETIMES = {'rule comm_rank:nccl_hang:unseen', 'rule comm:nccl_p2p_operations:unlike',
             # A daemon in a PID namespace of its own, as of a test in a container, counts no processes.
             'nccl-exporter / Processes measured / A', 'nccl-exporter / Processes measured / A (one job)',
             'rule process:nccl_wait_for_late:max', 'rule comm_rank:nccl_wait_for_late:max',
             'rule process:nccl_straggler:seldom', 'rule comm_rank:nccl_busy_seconds:per_send',
             'rule comm_rank:nccl_busy_seconds:usual', 'rule comm_rank:nccl_busy_seconds:expected',
             # Suspects need an alert of a late rank, and signals of the host that this machine may not have: quotas, PSI, names of threads, adapters.
             *(f'rule {name}' for name in ('process:nccl_suspect:named', 'process:nccl_suspect:gpu', 'process:nccl_suspect:adapter',
                                           'process:nccl_suspect:signal', 'job:nccl_suspect:median', 'process:nccl_suspect:departure',
                                           'NCCLStragglerSuspect (info)', 'NCCLSocketFallback (warning)')),
             *(f'nccl-rank / {panel}{one}' for one in ('', ' (one job)')
               for panel in ('Suspects / A', 'Suspects / B', 'Suspects / C', 'CPU of the progress threads / A', 'CPU of the progress threads / B',
                             'Held back by a CPU quota / A', 'Held back by a CPU quota / B', 'Waits for memory / A', 'Waits for memory / B',
                             'Devices for verbs / A'))}


def escaped(value):
    """As Grafana puts a value of a variable of several values into a regular expression."""
    return re.sub(r'([\\^$*+?.()|{}\[\]])', r'\\\\\1', value)


def rules(directory):
    """Each rule by the series that Prometheus writes for it: an answer between two polls, which a busy machine has far apart, is still there."""
    for group in yaml.safe_load((directory / 'rules/nccl-exporter.rules.yml').read_text())['groups']:
        for rule in group['rules']:
            if 'record' in rule:
                yield dashboards.Query(f'rule {rule["record"]}', rule['record'], False)
            else:
                severity = rule['labels']['severity']  # an alert may be a rule of each severity
                yield dashboards.Query(f'rule {rule["alert"]} ({severity})', f'ALERTS{{alertname="{rule["alert"]}", severity="{severity}"}}', False)


def values_of(series):
    if 'histogram' in series or 'histograms' in series:
        return ['histogram']
    return [value for _, value in series.get('values', [series.get('value')])]


class Question:
    """A query in one of the ways to ask it: all jobs, or one; until it was answered once."""

    def __init__(self, query, is_one_job):
        # A count that is 0 where there is nothing must have been more than that.
        self.query = dataclasses.replace(query, expression=query.expression.removesuffix(' or vector(0)'))
        self.is_one_job = is_one_job
        self.tried = 0
        self.name = query.place + (' (one job)' if is_one_job else '')

    def texts(self, candidates):
        """The next expressions to try: with other values of the variables each time, if it has any."""
        names = dashboards.variables_in(self.query.expression) - dashboards.BUILT_IN
        if not names:
            return [dashboards.substituted(self.query.expression, times(self.query))]
        chosen = candidates[:1] + list(itertools.islice(itertools.cycle(candidates), self.tried, self.tried + CANDIDATES_A_POLL))
        self.tried += CANDIDATES_A_POLL
        texts = []
        for candidate in chosen:
            values = {name: escaped(candidate.get(name, '')) for name in names} | {'collective': '.*'}
            if not self.is_one_job:
                values |= dict.fromkeys(('cluster', 'namespace', 'nccl_job', 'uid', 'comm_name', 'instance'), '.*')
            texts.append(dashboards.substituted(self.query.expression, values | times(self.query)))
        return list(dict.fromkeys(texts))


class DashboardsAndRules(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        if not os.access(dashboards_cluster.PROMETHEUS, os.X_OK):
            raise unittest.SkipTest(f'{dashboards_cluster.PROMETHEUS} is not installed')
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.cluster = dashboards_cluster.Cluster(scratch.name)
        cls.addClassCleanup(cls.cluster.close)
        cls.started = time.monotonic()

    def answer(self, server, query, text):
        """The series of the answer that are more than NaN; an error fails the test."""
        now = time.time()
        answer = server.ask('query', query=text, time=now) if query.is_instant else \
            server.ask('query_range', query=text, start=now - RANGE_SECONDS, end=now, step=STEP_SECONDS)
        self.assertEqual(answer['status'], 'success', f'{query.place}: {text}: {answer.get("error")}')
        return [series for series in answer['data']['result'] if any(value != 'NaN' for value in values_of(series))]

    def expect_heat_map(self, server, query, series):
        """Native or classic, and not both."""
        if server is self.cluster.native:
            self.assertEqual([set(one['metric']) for one in series], [set()], query.place)
            self.assertIn('histograms', series[0], query.place)
        else:
            self.assertEqual({tuple(one['metric']) for one in series}, {('le',)}, query.place)

    def poll(self, server, open_questions):
        candidates = server.series('group by (cluster, instance) (up{job="nccl-exporter"} == 0)')
        ranks = server.series('group by (cluster, namespace, nccl_job, uid, comm_name, comm, hostname, gpu_uuid, pid, instance) (nccl_rank_info)')
        # First the communicators whose id several jobs happen to have: joins must not trip over that.
        count = collections.Counter(rank['comm'] for rank in ranks)
        candidates += sorted(ranks, key=lambda rank: -count[rank['comm']])
        for question in list(open_questions):
            for text in question.texts(candidates):
                series = self.answer(server, question.query, text)
                if series:
                    if question.query.form == 'heatmap':
                        self.expect_heat_map(server, question.query, series)
                    open_questions.remove(question)
                    self.latest = f'{question.name}, {time.monotonic() - self.started:.0f} s'
                    break

    def test_every_expression_is_answered(self):
        queries = [query for dashboard in DASHBOARDS.values() for query in dashboards.queries(dashboard)]
        known_rules = list(rules(self.cluster.directory))
        still_open = {}
        for name, server in (('classic', self.cluster.classic), ('native', self.cluster.native)):
            self.assertTrue(dashboards_cluster.eventually(lambda s=server: self.is_ready(s), 30), self.cluster.log(f'prometheus-{name}'))
            still_open[name] = [Question(query, is_one) for query in queries for is_one in (False, True)]
        still_open['classic'] += [Question(query, False) for query in known_rules]  # rules use no histograms
        named = {question.name for questions in still_open.values() for question in questions}
        self.assertLessEqual(set(EMPTY) | SOMETIMES, named)
        self.assertGreater(len(named), 300)
        while self.unanswered(still_open) and time.monotonic() - self.started < SECONDS:
            began = time.monotonic()
            for name, server in (('classic', self.cluster.classic), ('native', self.cluster.native)):
                self.poll(server, still_open[name])
            if time.monotonic() - self.started > DAEMON_DIES_AFTER:
                self.cluster.kill_last_daemon()
            time.sleep(max(0, began + POLL_SECONDS - time.monotonic()))
        print(f'{len(named)} expressions; the last: {self.latest}', file=sys.stderr)
        if self.unanswered(still_open):
            self.skip_if_too_busy()
        self.assertEqual(self.unanswered(still_open), [], 'got no answer')
        left = {question.name for questions in still_open.values() for question in questions}
        self.assertEqual(set(EMPTY) - left, set(), 'got an answer; no exception needed')

    def skip_if_too_busy(self):
        """A machine that misses scrapes hides what rules and panels are about."""
        up = f'up{{job="nccl-exporter", part="", instance!="node-{dashboards_cluster.NODES}:9828"}}'
        if self.cluster.classic.series(f'sum_over_time({up}[20s]) < 18'):
            self.skipTest('the machine is too busy: scrapes are missing')

    def rows(self, uid, title, letter='A', **values):
        """Answer to a query of a panel now, label set and value, for the job or process of these values of the variables."""
        query, = [query for query in dashboards.queries(DASHBOARDS[uid]) if query.place == f'{uid} / {title} / {letter}']
        expression = query.expression
        values = dict.fromkeys(dashboards.variables_in(expression) - dashboards.BUILT_IN, '.*') | values | times(query) | {'__range': '5m'}
        return [(series['metric'], float(series['value'][1]))
                for series in self.cluster.classic.ask('query', query=dashboards.substituted(expression, values))['data']['result']]

    def global_ranks(self, rows):
        """Global ranks of the processes that rows name."""
        processes = {(labels['instance'], labels['pid']) for labels, _ in rows}
        return {labels['global_rank'] for labels in self.cluster.classic.series('nccl_rank_info') if (labels['instance'], labels['pid']) in processes}

    def expect(self, condition):
        def holds():
            try:
                return condition()
            except (IndexError, ValueError):  # no rows yet
                return False
        if not dashboards_cluster.eventually(holds, PANEL_SECONDS):
            self.skip_if_too_busy()
            self.fail('not so')

    def test_panels_name_whom_they_should(self):
        jobs = dashboards_cluster.JOBS

        def job(name):
            options = jobs[name][1]
            return {'nccl_job': options[options.index('--slurm-job-id') + 1]}

        with self.subTest('late rank'):
            self.expect(lambda: max(self.rows('nccl-job', 'Late ranks', 'A', **job('slow-rank')), key=lambda row: row[1])[0]['rank'] == '3')
            self.expect(lambda: {labels['rank'] for labels, _ in self.rows('nccl-job', 'Late ranks', 'E', **job('slow-rank'))} == {'3'})
        with self.subTest('late node'):
            self.expect(lambda: {labels['instance'] for labels, _ in self.rows('nccl-job', 'Late nodes', **job('slow-node'))} == {'node-1:9828'})
        with self.subTest('rank that does not call'):
            self.expect(lambda: self.global_ranks(self.rows('nccl-job', 'Hang: the rank that the others wait for', **job('missing-call'))) == {'2'})
        with self.subTest('rank in another call'):
            self.expect(lambda: self.global_ranks(self.rows('nccl-job', 'Hang: the rank that the others wait for', **job('mismatched-call'))) == {'1'})
        with self.subTest('network hang'):
            self.expect(lambda: self.rows('nccl-job', 'Oldest in flight', **job('network-hang'))[0][1] > 20)
            self.assertEqual(self.rows('nccl-job', 'Hang: the rank that the others wait for', **job('network-hang')), [])
        with self.subTest('findings'):
            found = lambda: {(labels['kind'], severity) for labels, severity in self.rows('nccl-fleet', 'Findings of the daemons')}
            self.expect(lambda: {('hang_culprit', 3), ('late_rank', 2)} <= found())
        with self.subTest('slow link'):
            self.expect(lambda: any(left < 0.8 for _, left in self.rows('nccl-network', 'Bandwidth against the best of this time range', 'C',
                                                                        namespace='research')))
        with self.subTest('waiting and moving'):
            self.expect(lambda: self.rows('nccl-job', 'Waiting for ranks, by communicator', **job('slow-rank'))[0][1] > 0.1)
            self.expect(lambda: 0 < self.rows('nccl-job', 'Moving data, by communicator', **job('slow-rank'))[0][1] < 1)

    @staticmethod
    def is_ready(server):
        try:
            return bool(server.series('nccl_rank_info'))
        except OSError:
            return False

    @staticmethod
    def unanswered(still_open):
        return sorted({f'{kind}: {question.name}' for kind, questions in still_open.items() for question in questions
                       if question.name not in EMPTY and question.name not in SOMETIMES})


if __name__ == '__main__':
    report.main()
