#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The runbooks: one for each alert, and the metrics and labels in their commands exist."""
import os
import pathlib
import re
import sys
import unittest

import yaml

HERE = pathlib.Path(os.path.abspath('deploy/prometheus'))
DOCS = pathlib.Path(os.path.abspath('docs'))
sys.path.insert(0, str(HERE.parent / 'tests'))
import report

RULES = [rule for group in yaml.safe_load((HERE / 'nccl-exporter.rules.yml').read_text())['groups'] for rule in group['rules']]
ALERTS = {rule['alert'] for rule in RULES if 'alert' in rule}
RUNBOOKS = {path.stem: path.read_text() for path in (DOCS / 'runbooks').glob('*.md')}
CATALOGUE = (DOCS / 'metrics.md').read_text()
METRIC = r'\b(?:[a-z][a-z0-9_]*:)?nccl_(?!job\b)[a-z0-9_]+(?::[a-z0-9_]+)?'
NO_METRICS = {'nccl_exporter'}  # part of addresses
# Metrics of Prometheus and of DCGM.
OTHER_METRICS = {'up', 'DCGM_FI_DEV_SM_CLOCK'}
OTHER_LABELS = {'instance', 'job', 'UUID', 'le', 'alertname', 'traffic'}


def families():
    rows = re.findall(r'^\| `(\w+)` \| (\w+)(?:, alerts)? \|', CATALOGUE, re.M)
    suffixes = {'histogram': ('', '_bucket', '_count', '_sum')}
    return {name + suffix for name, kind in rows for suffix in suffixes.get(kind, ('',))}


def labels():
    """Labels of all families: those of the table of labels, of the rows, and of the table of variables."""
    head = CATALOGUE.partition('## All families')
    rows = re.findall(r'^\| `\w+` \| \w+(?:, alerts)? \| ([^|]*) \|', head[2], re.M)
    return set(re.findall(r'\w+', ' '.join(rows))) | set(re.findall(r'`([a-z_]+)`', head[0]))


def recorded():
    return {rule['record'] for rule in RULES if 'record' in rule}


def commands(text):
    """Blocks of commands and queries, and those inside of sentences."""
    return re.findall(r'^```\w*\n(.*?)^```', text, re.M | re.S) + re.findall(r'`([^`\n]*)`', re.sub(r'^```.*?^```', '', text, flags=re.M | re.S))


def unknown_names(text):
    for command in commands(text):
        for name in re.findall(METRIC, command):
            if name not in families() | recorded() | labels() | NO_METRICS:
                yield name
        if re.search(METRIC + r'|\b(?:' + '|'.join(OTHER_METRICS) + r')\b\{', command):
            used = re.findall(r'[{,]\s*(\w+)\s*(?:=~|!~|!=|=)', command)
            used += [label for group in re.findall(r'\b(?:by|on|without|ignoring|group_left|group_right) \(([^)]*)\)', command)
                     for label in re.findall(r'\w+', group)]
            yield from (label for label in used if label not in labels() | OTHER_LABELS)


class Runbooks(unittest.TestCase):
    def test_every_alert_has_one(self):
        self.assertEqual(RUNBOOKS.keys(), ALERTS)

    def test_each_says_who_can_act_and_has_a_command(self):
        for name, text in RUNBOOKS.items():
            with self.subTest(name):
                self.assertRegex(text.partition('## Mitigation')[2].partition('## False')[0], r'(?m)^Responsible: ')
                self.assertTrue(any(re.search(METRIC + r'|ssh |curl |up\{', command) for command in commands(text)))

    def test_metrics_and_labels_of_their_commands_exist(self):
        for name, text in (RUNBOOKS | {'queries': (DOCS / 'queries.md').read_text()}).items():
            with self.subTest(name):
                self.assertEqual(sorted(set(unknown_names(text))), [])

    def test_names_that_do_not_exist_are_found(self):
        self.assertEqual(list(unknown_names('```\nsum by (node) (nccl_nothing_total{comm="1"})\nx:nccl_hang:nothing\n```\n')),
                         ['nccl_nothing_total', 'x:nccl_hang:nothing', 'node'])

    def test_alerts_that_stop_a_job_say_what_to_save(self):
        for rule in RULES:
            if rule.get('labels', {}).get('severity') == 'critical':
                self.assertRegex(RUNBOOKS[rule['alert']], r'save-first|### Save first', rule['alert'])


if __name__ == '__main__':
    report.main()
