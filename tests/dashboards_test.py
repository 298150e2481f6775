#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every expression of every dashboard and of the rules gets an answer from a real Prometheus that scrapes a cluster with faults,
with classic and with native histograms."""
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
# As Grafana sets them for this range and a scrape interval of a second.
TIMES = {'__rate_interval': '4s', '__interval': '1s', '__range': f'{RANGE_SECONDS}s'}

# What has no answer here, and why.
EMPTY = {
    'rule NCCLExporterSeriesDropped': 'a daemon serves 20,000 series; the whole cluster has fewer',
}


def escaped(value):
    """As Grafana puts a value of a variable of several values into a regular expression."""
    return re.sub(r'([\\^$*+?.()|{}\[\]])', r'\\\\\1', value)


def rules(directory):
    for group in yaml.safe_load((directory / 'rules/nccl-exporter.rules.yml').read_text())['groups']:
        for number, rule in enumerate(group['rules']):
            name = rule.get('alert') or f'{rule["record"]} ({number})'
            yield dashboards.Query(f'rule {name}', rule['expr'], True)


class Question:
    """A query in one of the ways to ask it: all jobs, or one; until it was answered once."""

    def __init__(self, query, is_one_job):
        self.query = query
        self.is_one_job = is_one_job
        self.tried = 0
        self.name = query.place + (' (one job)' if is_one_job else '')

    def texts(self, candidates):
        """The next expressions to try: with other values of the variables each time, if it has any."""
        names = dashboards.variables_in(self.query.expression) - dashboards.BUILT_IN
        if not names:
            return [self.query.expression]
        chosen = list(itertools.islice(itertools.cycle(candidates), self.tried, self.tried + CANDIDATES_A_POLL)) if candidates else []
        self.tried += CANDIDATES_A_POLL
        texts = []
        for candidate in chosen:
            values = {name: escaped(candidate.get(name, '')) for name in names} | {'collective': '.*'}
            if not self.is_one_job:
                values |= dict.fromkeys(('cluster', 'namespace', 'slurm_job_id', 'comm_name', 'instance'), '.*')
            texts.append(dashboards.substituted(self.query.expression, values | TIMES))
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
            server.ask('query_range', query=text, start=now - RANGE_SECONDS, end=now, step=1)
        self.assertEqual(answer['status'], 'success', f'{query.place}: {text}: {answer.get("error")}')
        samples = [(series,
                    series.get('histograms') or series.get('histogram') or series.get('values') or [series['value']]) for series in answer['data']['result']] \
            if answer['data']['resultType'] in ('vector', 'matrix') else [({}, [answer['data']['result']])]
        return [series for series, values in samples if 'histogram' in series or 'histograms' in series or any(value != 'NaN' for _,
            value in values)]

    def expect_heat_map(self, server, query, series):
        """Native or classic, and not both."""
        if server is self.cluster.native:
            self.assertEqual([set(one['metric']) for one in series], [set()], query.place)
            self.assertIn('histograms', series[0], query.place)
        else:
            self.assertEqual({tuple(one['metric']) for one in series}, {('le',)}, query.place)

    def poll(self, server, open_questions):
        candidates = server.series('group by (cluster, namespace, slurm_job_id, comm_name, comm, hostname, gpu_uuid, pid, instance) '
                                   '(nccl_rank_info)')
        for question in list(open_questions):
            for text in question.texts(candidates):
                series = self.answer(server, question.query, text)
                if series:
                    if question.query.form == 'heatmap':
                        self.expect_heat_map(server, question.query, series)
                    open_questions.remove(question)
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
        self.assertLessEqual(set(EMPTY), named)
        self.assertGreater(len(named), 300)
        while self.unanswered(still_open) and time.monotonic() - self.started < SECONDS:
            began = time.monotonic()
            for name, server in (('classic', self.cluster.classic), ('native', self.cluster.native)):
                self.poll(server, still_open[name])
            if time.monotonic() - self.started > DAEMON_DIES_AFTER:
                self.cluster.kill_last_daemon()
            time.sleep(max(0, began + POLL_SECONDS - time.monotonic()))
        print(f'{len(named)} expressions, {time.monotonic() - self.started:.0f} s', file=sys.stderr)
        self.assertEqual(self.unanswered(still_open), [], 'got no answer')
        self.assertEqual(set(EMPTY) - {question.name for questions in still_open.values() for question in questions}, set(), 'got an answer; no '
            'exception needed')

    @staticmethod
    def is_ready(server):
        try:
            return bool(server.series('nccl_rank_info'))
        except OSError:
            return False

    @staticmethod
    def unanswered(still_open):
        return sorted({f'{kind}: {question.name}' for kind,
                       questions in still_open.items() for question in questions if question.name not in EMPTY})


if __name__ == '__main__':
    report.main()
