#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Files of --labels.dir that are wrong, or of other users, beside the real daemon: labels of before stay, and log, metric and finding say so."""
import json
import os
import pathlib
import sys

sys.path[:0] = [str(pathlib.Path(folder).resolve()) for folder in ('deploy/tests', 'tests/system/newcomer', 'tests/system/otlp')]
import report
from pushing import OPENER, PushTest

DAEMON_USER, STRANGER = 65532, 1001
FINDING = ('segments_unusable', 'warning', '', 'Mend it, and rename it into place.', 'NCCLExporterSegmentsUnusable')


class BadLabels(PushTest):
    def setUp(self):
        super().setUp()
        self.labels = self.root / 'labels.d'
        self.labels.mkdir(mode=0o755)
        self.daemon.kill()
        self.daemon.wait()

    def start_with_labels(self, **options):
        self.daemon = self.start([self.root / 'nccl-exporter', f'--web.listen-address=127.0.0.1:{self.port}', f'--segment.dir={self.segments}',
                                  '--segment.retention=1h', '--findings.socket=', f'--labels.dir={self.labels}'], **options)
        self.eventually(lambda: 'listens at' in self.daemon.text(), self.daemon.text)

    def put(self, text, name='a.json', owner=None):
        new = self.root / 'new'
        new.write_text(text)
        new.chmod(0o644)
        if owner:
            os.chown(new, owner, owner)
        new.rename(self.labels / name)
        return self.labels / name

    def put_labels(self, owner=None, file='a.json', **labels):
        return self.put(json.dumps({'match': {'uid': os.geteuid()}, 'labels': labels}), file, owner)

    def expect_label(self, value, name='team'):
        infos = [dict(labels) for (family, labels) in self.scraped() if family == 'nccl_rank_info']
        self.assertEqual(2 * [value], [labels.get(name) for labels in infos])

    def errors(self):
        """By the owner of the file."""
        return {dict(labels)['uid']: value for (family, labels), value in self.scraped().items()
                if family == 'nccl_exporter_user_segment_errors_total' and dict(labels)['reason'] == 'bad_labels'}

    def findings(self):
        with OPENER.open(f'http://127.0.0.1:{self.port}/api/v1/findings', timeout=60) as page:
            return [finding for finding in json.load(page)['findings'] if finding['kind'] == 'segments_unusable']

    def expect_finding(self, path, count, why):
        self.eventually(lambda: f'{path} of user ' in str(self.findings()), self.daemon.text)
        [finding] = self.findings()
        self.assertEqual(FINDING, tuple(finding[key] for key in ('kind', 'severity', 'cost', 'next', 'runbook')))
        self.assertIn(f'{path} of user {path.stat().st_uid} cannot be used since ', finding['headline'])
        self.assertIn(f'the labels of before stay ({why}).', finding['headline'])
        self.assertEqual([['reason', 'bad_labels'], ['files and directories with this fault now', str(count)]],
                         [[row['name'], row['value']] for row in finding['evidence']])

    def logged(self):
        return [line.partition(' bad_labels ')[2].rstrip('"') for line in self.daemon.text().splitlines() if ' bad_labels ' in line]

    def test_are_in_log_metric_and_finding(self):
        self.start_with_labels()
        owner = str(os.geteuid())
        self.put_labels(team='x')
        self.expect_label('x')
        self.assertEqual(({}, []), (self.errors(), self.findings()))
        path = self.put('{')
        for _ in range(3):
            self.expect_label('x')
            self.assertEqual({owner: 1}, self.errors())
        self.expect_finding(path, 1, 'is no JSON')
        line = f'of uid {owner}: 1 times since the last such line, the latest {path}: is no JSON'
        self.eventually(lambda: self.logged() == [line], self.daemon.text)
        second = self.put('[7]', 'b.json')
        self.expect_finding(second, 2, 'a rule must be {"match": {...}, "labels": {...}}')
        self.assertEqual({owner: 2}, self.errors())
        self.put_labels(team='y')
        second.unlink()
        self.expect_label('y')
        self.eventually(lambda: self.findings() == [], self.daemon.text)
        self.assertEqual({owner: 2}, self.errors())
        self.assertEqual([line], self.logged(), 'one line in ten minutes')

    def test_of_other_users_are_refused(self):
        """Files of root and of the daemon's user are taken, a stranger's file or directory is not."""
        if os.geteuid() != 0:
            self.skipTest('needs root, to become other users')
        try:
            os.chown(self.labels, DAEMON_USER, DAEMON_USER)
        except OSError:
            self.skipTest('no other users here')
        self.start_with_labels(user=DAEMON_USER, group=DAEMON_USER, extra_groups=[])
        self.put_labels(team='of root')
        self.expect_label('of root')
        self.put_labels(team='of the daemon', owner=DAEMON_USER)
        self.expect_label('of the daemon')
        self.assertEqual({}, self.errors())
        path = self.put_labels(team='of a stranger', owner=STRANGER)
        for _ in range(3):
            self.expect_label('of the daemon')
        self.assertEqual({str(STRANGER): 1}, self.errors())
        self.expect_finding(path, 1, f'belongs to user {STRANGER}')
        self.put_labels(team='of root')
        self.expect_label('of root')
        os.chown(self.labels, STRANGER, STRANGER)
        self.put_labels(team='in a directory of a stranger')
        for _ in range(3):
            self.expect_label('of root')
        self.assertEqual({str(STRANGER): 2}, self.errors())
        self.expect_finding(self.labels, 1, f'belongs to user {STRANGER}')
        os.chown(self.labels, 0, 0)
        self.expect_label('in a directory of a stranger')
        self.eventually(lambda: self.findings() == [], self.daemon.text)


if __name__ == '__main__':
    report.main()
