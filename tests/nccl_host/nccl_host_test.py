#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Every job of the table on every release of the rig that NCCL_HOST_RIG names; skipped without."""
import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import job_table
import report
from documented_segment import Document
from played_job import BUILT, Programs, play, rigs_of
from verdict import judge

PROGRAMS = Programs(*map(os.path.abspath, BUILT))
RIG = os.environ.get('NCCL_HOST_RIG')
SEEDS = range(10)


class NcclHost(unittest.TestCase):
    @unittest.skipUnless(RIG, 'no rig: NCCL_HOST_RIG names the folder of one, see tests/nccl_host/README.md')
    def test_a_rig_is_given(self):
        self.assertTrue(rigs_of(RIG))


def test_of(job, rig):
    def test(self):
        document = Document(pathlib.Path('proto/README.md').read_text(encoding='utf-8'))
        with tempfile.TemporaryDirectory(prefix='nccl-host-') as folder:
            self.assertEqual(judge(play(job, rig, PROGRAMS, document, folder)).faults, [])
    return test


if RIG:
    for rig in rigs_of(RIG):
        for job in job_table.all_jobs(SEEDS):
            setattr(NcclHost, f'test_{rig.release}_{job.name}', test_of(job, rig))


if __name__ == '__main__':
    report.main()
