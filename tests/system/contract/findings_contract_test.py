#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""/api/v1/findings is a contract: docs/findings.schema.json breaks none of its former versions, and real answers keep to it.

The golden copies beside this file never change. An addition needs the next minor: `contract_lines.py docs/findings.schema.json >1.1.txt`, and
kFindingsSchema in exporter/findings/findings_json.h."""
import copy
import json
import os
import pathlib
import re
import subprocess
import sys
import unittest
import urllib.request

import jsonschema

HERE = pathlib.Path(os.path.abspath('tests/system/contract'))
sys.path[:0] = [str(HERE), str(HERE.parent / 'newcomer'), os.path.abspath('deploy/tests')]
import contract_lines
import report
from processes import ProcessTest

SCHEMA = json.loads(pathlib.Path('docs/findings.schema.json').read_text())
GOLDEN = {tuple(map(int, path.stem.split('.'))): path.read_text().splitlines() for path in HERE.glob('*.txt')}
NEWEST = max(GOLDEN)


def changed(change):
    schema = copy.deepcopy(SCHEMA)
    change(schema)
    return contract_lines.lines(schema)


class Contract(unittest.TestCase):
    def test_the_schema_is_one(self):
        jsonschema.Draft202012Validator.check_schema(SCHEMA)

    def test_is_that_of_the_newest_golden_copy(self):
        self.assertEqual(GOLDEN[NEWEST], contract_lines.lines(SCHEMA), 'an addition needs a new minor and its golden copy')

    def test_no_version_breaks_the_ones_before(self):
        versions = sorted(GOLDEN)
        self.assertEqual([(1, minor) for minor in range(len(versions))], versions)
        for old, new in zip(versions, versions[1:]):
            self.assertEqual([], contract_lines.broken(GOLDEN[old], GOLDEN[new]), f'{old} to {new}')

    def test_an_incompatible_change_is_found(self):
        def finding(schema):
            return schema['$defs']['finding']
        for change in (lambda schema: finding(schema)['properties'].pop('cost'),
                       lambda schema: finding(schema)['required'].remove('id'),
                       lambda schema: finding(schema)['properties'].update(uid={'type': 'string'}),
                       lambda schema: finding(schema)['properties'].update(uid={'type': ['integer', 'null']}),
                       lambda schema: schema['$defs']['kind']['anyOf'][0]['enum'].remove('late_rank'),
                       lambda schema: schema['$defs']['standing']['anyOf'][0]['enum'].remove('killed'),
                       lambda schema: schema['properties']['watches']['properties'].pop('boot_id'),
                       lambda schema: schema['properties'].update(api={'const': 'v2'})):
            self.assertNotEqual([], contract_lines.broken(GOLDEN[NEWEST], changed(change)))

    def test_an_addition_is_compatible(self):
        for change in (lambda schema: schema['$defs']['finding']['properties'].update(suspects={'type': 'array'}),
                       lambda schema: schema['$defs']['kind']['anyOf'][0]['enum'].append('fallback')):
            lines = changed(change)
            self.assertNotEqual(GOLDEN[NEWEST], lines)
            self.assertEqual([], contract_lines.broken(GOLDEN[NEWEST], lines))


class Answers(ProcessTest):
    """Those of a real daemon that watches a simulated job."""
    VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)

    def answer(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f'http://127.0.0.1:{self.port}/api/v1/findings', timeout=10) as page:
            return json.load(page)

    def found(self, kind, severity):
        """The answer that has such a finding, with its place."""
        answers = []

        def is_there():
            answers.append(self.answer())
            return any((finding['kind'], finding['severity']) == (kind, severity) for finding in answers[-1]['findings'])
        self.eventually(is_there, lambda: json.dumps(answers[-1]))
        answer = answers[-1]
        return answer, next(i for i, finding in enumerate(answer['findings']) if finding['kind'] == kind)

    def play(self, *options, scale=100):
        segments = self.root / 'segments'
        segments.mkdir(mode=0o1777)
        daemon = self.start([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}', f'--segment.dir={segments}',
                             f'--findings.time-scale={scale}', '--findings.socket='])
        self.eventually(lambda: 'listens at' in daemon.text(), daemon.text)
        self.start([self.root / 'nccl-sim', '--plugin', self.root / 'libnccl-profiler-exporter.so', '--segment-dir', segments, '--pace', 'real',
                    '--duration', '300', '--rate', '20', '--ranks-per-node', '4', '--layout', 'dp', '--slurm-job-id', '4711', '--env',
                    'NCCL_EXPORTER_KERNEL_TIMING=on', '--env', 'NCCL_ALLGATHERV_ENABLE=0', *options])

    def expect_valid(self, answer):
        self.assertEqual([], [f'{list(error.absolute_path)}: {error.message}' for error in self.VALIDATOR.iter_errors(answer)])
        self.assertEqual('.'.join(map(str, NEWEST)), answer['schema'])

    def expect_no_names_beyond(self, answer):
        """All names of the answer are in the schema: none is added without it."""
        closed = json.loads(re.sub(r'"type": "object"', '"type": "object", "additionalProperties": false', json.dumps(SCHEMA)))
        self.assertEqual([], [error.message for error in jsonschema.Draft202012Validator(closed).iter_errors(answer)])

    def test_a_hang_keeps_its_id_and_names_its_culprit(self):
        self.play('--incident', 'missing-call:rank=1,from=2')
        first, place = self.found('hang_culprit', 'warning')
        self.expect_valid(first)
        later, later_place = self.found('hang_culprit', 'critical')
        self.expect_valid(later)
        self.expect_no_names_beyond(later)
        finding = later['findings'][later_place]
        self.assertEqual(first['findings'][place]['id'], finding['id'])
        [culprit] = finding['culprits']
        self.assertEqual(('1', 'missing_call', '4711'), (culprit['global_rank'], culprit['standing'], finding['nccl_job']))
        self.assertEqual({'lost_gpus': 3, 'gpus': 4}, finding['numbers'])
        self.assertIn(f"py-spy dump --pid {culprit['pid']}", [step['command'] for step in finding['collect']])
        self.expect_that_scripts_act_on_it(culprit['host'])

    def expect_that_scripts_act_on_it(self, node):
        """The finding, as `wait` prints it, has all that an example of deploy/act needs."""
        wait = subprocess.run([self.root / 'nccl-exporter', 'wait', '--for=hang', '--job=4711', '--timeout=30', f'--daemon=http://127.0.0.1:{self.port}'],
                              capture_output=True, text=True)
        self.assertEqual((10, ''), (wait.returncode, wait.stderr))
        act = subprocess.run(['deploy/act/act-nvsentinel', '--jobs=4711', f"--history={self.root / 'acted'}"], input=wait.stdout, capture_output=True, text=True)
        self.assertEqual((0, ''), (act.returncode, act.stderr))
        self.assertIn(f'"nodeName": "{node}"', act.stdout)

    def test_a_killed_rank_and_an_answer_without_findings(self):
        self.play('--kill-rank', '1', '--kill-step', '60')
        self.expect_valid(self.answer())
        answer, place = self.found('process_killed', 'warning')
        self.expect_valid(answer)
        self.expect_no_names_beyond(answer)
        self.assertEqual({'ended_processes': 1, 'processes': 4}, answer['findings'][place]['numbers'])

    def test_an_answer_that_breaks_the_contract_is_found(self):
        self.play('--incident', 'missing-call:rank=1,from=2')
        answer, place = self.found('hang_culprit', 'critical')
        for path, value in (('id', 7), ('severity', 'dreadful'), ('culprits', None), ('numbers', {'gpus': 'all'}), ('since', 'today')):
            wrong = copy.deepcopy(answer)
            wrong['findings'][place][path] = value
            self.assertFalse(self.VALIDATOR.is_valid(wrong), path)
            del wrong['findings'][place][path]
            self.assertFalse(self.VALIDATOR.is_valid(wrong), f'without {path}')


if __name__ == '__main__':
    report.main()
