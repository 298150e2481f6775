#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the cases against the rules with promtool, checks the rules, and compares the committed file with what the generator prints.

Usage: rules_test.py [lasting | CASE...]. `lasting`: the cases of lasting_cases.py alone, which last 100 minutes each."""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import cases
from cluster import ALERT_SET, READ_BY_RULES

HERE = pathlib.Path(__file__).resolve().parent
RUNBOOKS = HERE.parent.parent.parent / 'docs/runbooks'
SECTIONS = ['Meaning', 'Impact', 'Diagnosis', 'Mitigation', 'False positives']
RULES = HERE.parent / 'nccl-exporter.rules.yml'
# promtool cannot play a scrape that comes in between two rules of one evaluation.
TOLD_TWICE = ['NCCLCollectiveHang', 'NCCLHangCulprit', 'NCCLHangMismatchedCall', 'NCCLHangNobodyBehind']
FIRING = 'count by (alertname, nccl_job, comm_name, rank, hostname, gpu, uid, reason, cause) (ALERTS{alertstate="firing"})'
EVER = 'count by (alertname, comm_name, rank) (count_over_time(ALERTS{alertstate="firing"}[2h]))'
# Bazel's shards of a test take the cases in turn. The first one looks at the rules as a whole.
SHARD, SHARDS = int(os.environ.get('TEST_SHARD_INDEX', 0)), int(os.environ.get('TEST_TOTAL_SHARDS', 1))


def selector(labels):
    return '{' + ','.join(f'{key}="{value}"' for key, value in labels.items()) + '}'


def samples(alerts):
    """Alerts that differ by their communicator's identity or their severity only are counted."""
    named = collections.Counter(selector({key: value for key, value in labels.items() if key not in ('comm', 'severity')}) for labels in alerts)
    return [{'labels': labels, 'value': count} for labels, count in named.items()]


def test_of(case):
    cluster, expected = case()
    if expected is cases.NOTHING_EVER:
        checks = [{'expr': EVER, 'eval_time': f'{cluster.times[-1]}s', 'exp_samples': []}]
    else:
        checks = [{'expr': FIRING, 'eval_time': f'{round(minute * 60)}s', 'exp_samples': samples(alerts)}
                  for minute, alerts in expected.items()]
        checks += [{'expr': f'count(ALERTS{{alertstate="firing",alertname="{a["alertname"]}",comm="{a["comm"]}"}})',
                    'eval_time': f'{round(minute * 60)}s', 'exp_samples': [{'labels': '{}', 'value': 1}]}
                   for minute, alerts in expected.items() for a in alerts if 'comm' in a]
        checks += [{'expr': f'group by (severity) (ALERTS{{alertstate="firing",alertname="{a["alertname"]}"}})', 'eval_time': f'{round(minute * 60)}s',
                    'exp_samples': [{'labels': selector({'severity': a['severity']}), 'value': 1}]}
                   for minute, alerts in expected.items() for a in alerts if 'severity' in a]
    return {'name': case.__name__, 'interval': '15s', 'input_series': cluster.series(READ_BY_RULES), 'promql_expr_test': checks}


def value_test(case):
    """Values that rules record, in thousandths: promtool compares exactly."""
    cluster, minute, expected = case()
    return {'name': case.__name__, 'interval': '15s', 'input_series': cluster.series(READ_BY_RULES), 'promql_expr_test': [
        {'expr': f'round(1000 * {query})', 'eval_time': f'{round(minute * 60)}s',
         'exp_samples': [{'labels': selector(labels), 'value': round(1000 * value)} for labels, value in answers]}
        for query, answers in expected.items()]}


def text_test(case):
    """The whole text of some alerts, once. Texts may read detail, if it is scraped."""
    cluster, minute, alerts = case()
    runbooks = 'https://github.com/nccl-exporter/nccl-exporter/blob/main/docs/runbooks'
    return {'name': case.__name__, 'interval': '15s', 'input_series': cluster.series(cluster.scraped_families), 'alert_rule_test': [
        {'eval_time': f'{round(minute * 60)}s', 'alertname': name, 'exp_alerts': [{
            'exp_labels': {'severity': severity_of(name)} | labels, 'exp_annotations': texts | {'runbook_url': f'{runbooks}/{name}.md'}}]}
        for name, (labels, texts) in alerts.items()]}


def severity_of(name):
    """The first: of an alert with two, the higher one."""
    return re.search(rf'alert: {name}\n(?:.*\n)*?    labels: {{severity: (\w+)}}', RULES.read_text())[1]


def record_of(text, alert):
    """The rule of the record with which the alert's expression begins; empty if it begins with none."""
    name = re.search(r'\n    expr: ([\w:]+)', alert)
    rule = name and re.search(rf'\n  - record: {name[1]}\n(?:    .*\n)+', text)
    return rule[0] if rule else ''


def complaints_about_alerts(text, named_in_cases):
    """Parts that an alert lacks: a severity, a text, a runbook with all sections, or a case in which it fires."""
    for block in re.split(r'\n  - ', text):
        if not block.startswith('alert: '):
            continue
        name = re.match(r'alert: (\w+)', block)[1]
        for wanted in ('severity: (critical|warning|info)', 'summary: .', 'description: .', f'runbook_url: .*/{name}.md'):
            if not re.search(wanted, block):
                yield f'{name} has no {wanted}'
        if name in TOLD_TWICE and not re.search(r'\n    for: |count_over_time\(.*\) > 1', block + record_of(text, block)):
            yield f'{name} is told by a single evaluation, whose rules may have seen different scrapes'
        page = RUNBOOKS / f'{name}.md'
        if not page.exists() or re.findall('^## (.*)$', page.read_text(), re.M) != SECTIONS:
            yield f'{page} does not exist or has not the sections {SECTIONS}'
        if name not in named_in_cases:
            yield f'{name} fires in no case'


def detail_in(text):
    """Families that the rules read and that are not in the alert set. Those of the network read their own detail."""
    unknown = set()
    for group in re.split(r'^- name: ', text, flags=re.M):
        allowed = READ_BY_RULES if group.startswith('nccl_network\n') else ALERT_SET
        expressions = ' '.join(re.findall(r'^    expr: ((?:\|\n(?:      .*\n)+)|.*)', group, re.M))
        unknown |= {name for name in re.findall(r'(?<![\w:])nccl_(?!job\b)\w+(?![\w:])', expressions) if not allowed.fullmatch(name)}
    return unknown


def fails(name, command):
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {'GOGC': '400'})  # a third less CPU time
    if done.returncode:
        print(f'FAILED  {name}\n{done.stdout}{done.stderr}')
    return done.returncode != 0


def chosen(wanted):
    """Cases of alerts, of texts and of recorded values."""
    if wanted == ['lasting']:
        return cases.LASTING, [], []
    if not wanted:
        return cases.CASES, cases.TEXTS, cases.VALUES
    return tuple([case for case in known if case.__name__ in wanted]
                 for known in (cases.CASES + cases.LASTING + cases.OPEN, cases.TEXTS, cases.VALUES))


def short_ranges_in(text):
    """Ranges of scraped series that hold one scrape only where scrapes come long before evaluations: nothing changes in them. promtool's scrapes come
    with its evaluations, so no case shows that. Regresses: a killed rank was named though the others had gone on, where each was scraped more than 5 s
    before the evaluation."""
    scrape, units = 15, {'s': 1, 'm': 60, 'h': 3600}
    for function, series, number, unit in re.findall(r'(\w+)\((nccl_\w+)(?:\{[^}]*\})?\[(\d+)([smh])\]', text):
        if not function.endswith('last_over_time') and int(number) * units[unit] < 2 * scrape:
            yield f'{function} of {series} over {number}{unit}, which may hold one scrape'


def faults_of_rules(wanted):
    """Faults of the rules as a whole, and alerts that are in no case."""
    text = RULES.read_text()
    if subprocess.run([HERE.parent / 'generate-rules'], capture_output=True, text=True, check=True).stdout != text:
        yield 'the committed rules are not what generate-rules prints: run it with --output deploy/prometheus'
    for name in detail_in(text):
        yield f'the rules read {name}, which is detail and may not be scraped with the alerts'
    yield from short_ranges_in(text)
    alerts, texts, _ = chosen(wanted)
    if not wanted:
        written = {name for case in texts for name in case()[2]}
        yield from (f'the text of {name} is in no case' for name in re.findall(r'alert: (\w+)', text) if name not in written)
    if wanted in ([], ['lasting']):
        expected = [case()[1] for case in alerts]
        yield from complaints_about_alerts(text, {alert['alertname'] for checks in expected if checks is not cases.NOTHING_EVER
                                                  for alerts in checks.values() for alert in alerts})


def main():
    wanted = sys.argv[1:]
    pathlib.Path(os.environ.get('TEST_SHARD_STATUS_FILE', os.devnull)).touch()
    failed = False
    if SHARD == 0:
        failed = fails('promtool check rules', ['promtool', 'check', 'rules', RULES])
        for fault in faults_of_rules(wanted):
            print('FAILED ', fault)
            failed = True
    # Else promtool takes any order, and what a rule reads of another group is now and then an evaluation old.
    groups = re.findall(r'^ *- name: (.*)$', RULES.read_text(), re.M)
    alerts, texts, values = chosen(wanted)
    tests = [(value_test, case) for case in values] + [(text_test, case) for case in texts] + [(test_of, case) for case in alerts]
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / 'case.json'
        for test, case in tests[SHARD::SHARDS]:
            path.write_text(json.dumps({'rule_files': [str(RULES.resolve())], 'evaluation_interval': '15s', 'group_eval_order': groups,
                                        'tests': [test(case)]}))
            failed |= fails(case.__name__, ['promtool', 'test', 'rules', path])
    sys.exit(failed)


main()
