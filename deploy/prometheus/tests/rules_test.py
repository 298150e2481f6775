#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plays the cases against the rules with promtool, checks the rules, and compares the committed file with what the generator prints."""
import json
import pathlib
import subprocess
import sys
import tempfile

import cases

HERE = pathlib.Path(__file__).parent
RULES = HERE.parent / 'nccl-exporter.rules.yml'
FIRING = 'count by (alertname, slurm_job_id, comm_name, rank, hostname, gpu) (ALERTS{alertstate="firing"})'
EVER = 'count by (alertname, comm_name, rank) (count_over_time(ALERTS{alertstate="firing"}[2h]))'


def sample(labels):
    named = {key: value for key, value in labels.items() if key != 'comm'}
    return {'labels': '{' + ','.join(f'{key}="{value}"' for key, value in named.items()) + '}', 'value': 1}


def test_of(case):
    cluster, expected = case()
    if expected is cases.NOTHING_EVER:
        checks = [{'expr': EVER, 'eval_time': f'{cluster.times[-1]}s', 'exp_samples': []}]
    else:
        checks = [{'expr': FIRING, 'eval_time': f'{round(minute * 60)}s', 'exp_samples': [sample(a) for a in alerts]}
                  for minute, alerts in expected.items()]
        checks += [{'expr': f'count(ALERTS{{alertstate="firing",alertname="{a["alertname"]}",comm="{a["comm"]}"}})',
                    'eval_time': f'{round(minute * 60)}s', 'exp_samples': [{'labels': '{}', 'value': 1}]}
                   for minute, alerts in expected.items() for a in alerts if 'comm' in a]
    return {'name': case.__name__, 'interval': '15s', 'input_series': cluster.series(), 'promql_expr_test': checks}


def fails(name, command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(f'FAILED  {name}\n{done.stdout}{done.stderr}')
    return done.returncode != 0


def main():
    wanted = sys.argv[1:]
    failed = fails('promtool check rules', ['promtool', 'check', 'rules', RULES])
    generated = subprocess.run([HERE.parent / 'generate-rules'], capture_output=True, text=True, check=True).stdout
    if generated != RULES.read_text():
        print('FAILED  the committed rules are not what generate-rules prints: run it with --output deploy/prometheus')
        failed = True
    with tempfile.TemporaryDirectory() as scratch:
        for case in cases.CASES:
            if wanted and case.__name__ not in wanted:
                continue
            path = pathlib.Path(scratch) / 'case.json'
            path.write_text(json.dumps({'rule_files': [str(RULES.resolve())], 'evaluation_interval': '15s',
                                        'tests': [test_of(case)]}))
            failed |= fails(case.__name__, ['promtool', 'test', 'rules', path])
    sys.exit(failed)


main()
