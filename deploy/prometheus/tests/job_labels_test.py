#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of `generate-rules --job-labels`, judged by promtool: alerts carry the label, and jobs that differ by it alone are two jobs."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(os.path.abspath('deploy/prometheus'))
sys.path[:0] = [str(HERE / 'tests'), str(HERE.parent / 'tests')]
import report
from cluster import READ_BY_RULES
from jobs import beside, data_parallel

RANKS = 8
LATE = {'speech': 2, 'vision': 5}  # rank that is late in the job of each team
STRAGGLERS = 'count by (team, nccl_job, comm_name, rank) (ALERTS{alertname="NCCLStragglerRank", alertstate="firing"})'
GPUS = 'sum by (team, nccl_job) (job:nccl_job:info)'
JOBS = 'count by (nccl_job) (job:nccl_job:info)'
CAUSES = 'count by (team, nccl_job, cause) (job:nccl_lost_gpu_seconds:rate > 0)'
LOST = 'count by (team, nccl_job) (job:nccl_waiting_gpu_seconds:rate > 0)'


def two_teams():
    """Two jobs of one user with one name, on the same nodes, with communicators of the same id: nothing but the team differs."""
    teams = list(LATE)
    jobs = [data_parallel(20)]
    jobs[0].job = {'nccl_job': '42', 'team': teams[0]}
    jobs.append(beside(jobs[0], {'nccl_job': '42', 'team': teams[1]}))
    for team, job in zip(teams, jobs):
        job.late = lambda rank, t, late=LATE[team]: 0.1 if rank == late and t > 600 else 0
    return jobs[0]


def generated(*arguments):
    return subprocess.run([HERE / 'generate-rules', *arguments], capture_output=True, text=True)


class JobLabels(unittest.TestCase):
    def complaints(self, rules, checks):
        """promtool's about two teams, by their rules."""
        groups = re.findall(r'^ *- name: (.*)$', rules, re.M)
        test = {'interval': '15s', 'input_series': two_teams().series(READ_BY_RULES), 'promql_expr_test': [
            {'expr': expression, 'eval_time': f'{minute}m', 'exp_samples': [{'labels': f'{{{labels}}}', 'value': value} for labels, value in samples]}
            for minute, expression, samples in checks]}
        with tempfile.TemporaryDirectory() as scratch:
            (pathlib.Path(scratch) / 'rules.yml').write_text(rules)
            path = pathlib.Path(scratch) / 'case.json'
            path.write_text(json.dumps({'rule_files': ['rules.yml'], 'evaluation_interval': '15s', 'group_eval_order': groups, 'tests': [test]}))
            done = subprocess.run(['promtool', 'test', 'rules', path], capture_output=True, text=True)
        return done.stdout + done.stderr if done.returncode else ''

    def test_jobs_of_two_teams_are_two_jobs(self):
        rules = generated('--job-labels', 'cluster,namespace,nccl_job,team').stdout
        job = 'team="{}", nccl_job="42"'.format
        named = [(f'{job(team)}, comm_name="dp", rank="{rank}"', 1) for team, rank in LATE.items()]
        of_each = [(job(team), 1) for team in LATE]
        self.assertEqual('', self.complaints(rules, [
            (10, STRAGGLERS, []), (20, STRAGGLERS, named), (20, GPUS, [(job(team), RANKS) for team in LATE]),
            (20, JOBS, [('nccl_job="42"', 2)]), (20, LOST, of_each),
            (20, CAUSES, [(f'{job(team)}, cause="late_rank"', 1) for team in LATE])]))

    def test_without_the_label_they_are_one(self):
        """So the other test judges what the label does."""
        self.assertEqual('', self.complaints(generated().stdout, [(20, JOBS, [('nccl_job="42"', 1)])]))

    def test_what_is_no_name_is_refused(self):
        for labels, wrong in (('nccl_job,cost-center', 'cost-center'), ('nccl_job,,team', ''), ('nccl_job,7th', '7th'), ('nccl_job,team)', 'team)')):
            done = generated('--job-labels', labels)
            self.assertEqual((2, ''), (done.returncode, done.stdout))
            self.assertIn(f'argument --job-labels: {wrong!r} is not a label name\n', done.stderr)


if __name__ == '__main__':
    report.main()
