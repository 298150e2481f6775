#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The commands by which docs/report.md leaves a report at the end of a job, as they stand there, after the job was killed."""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

sys.path[:0] = [str(pathlib.Path(path).resolve()) for path in ('deploy/tests', 'tests/system')]
import report
from one_daemon import DAEMON, OneDaemon

# `NAME: ..., in the Epilog: `COMMAND``
COMMANDS = dict(re.findall(r'^- (\w+), .*?: `(nccl-exporter report [^`]*)`$', pathlib.Path('docs/report.md').read_text(encoding='utf-8'), re.M))


class KeptReport(OneDaemon):
    def keep(self, command, **environment):
        """Runs the command as root of a node whose folders are in a folder of the test; its file."""
        programs = pathlib.Path(self.segments) / 'bin'
        programs.mkdir(exist_ok=True)
        script = programs / 'nccl-exporter'
        # Where the documents have the default directory, and the daemon's address.
        script.write_text(f'#!/bin/sh\ncommand=$1; shift\nexec {shlex.quote(DAEMON)} "$command" --segment.dir={shlex.quote(self.segments)} '
                          f'--daemon=http://127.0.0.1:{self.port} "$@"\n')
        script.chmod(0o755)
        folder = pathlib.Path(self.segments) / 'reports'
        folder.mkdir(exist_ok=True)
        command = re.sub(r'/var/log|/reports', str(folder), command)
        subprocess.run(['sh', '-ec', command], check=True, env={**os.environ, **environment, 'PATH': f'{programs}:{os.environ["PATH"]}'})
        [file] = folder.iterdir()
        return file

    def test_is_left_by_the_epilog_of_a_job_that_was_killed(self):
        self.start_daemon()
        for job in ('4711', '4712'):
            self.start_job('--slurm-job-id', job, '--layout', 'dp', '--ranks-per-node', '2', '--rate', '20', '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on')
        self.eventually(lambda: self.samples('nccl_exporter_segments', state='live') == [4])
        self.eventually(lambda: max(self.samples('nccl_collective_timed_operations_total'), default=0) > 10)
        os.killpg(self.processes[1][0].pid, signal.SIGKILL)
        self.processes.pop(1)[0].wait()
        file = self.keep(COMMANDS['Slurm'], SLURM_JOB_ID='4711')
        kept = json.loads(file.read_text())
        self.assertEqual((file.name[:5], kept['schema'], kept['job']['processes']), ('4711-', '2.0', 2))
        self.assertGreater(kept['traffic'][0]['timed_operations'], 10)
        shown = subprocess.run([DAEMON, 'report', file], check=True, capture_output=True, text=True).stdout
        self.assertIn('4711', shown)
        self.assertNotIn('4712', shown)

    def test_is_left_by_the_sidecar_of_a_pod(self):
        self.start_daemon()
        self.start_job('--layout', 'dp', '--ranks-per-node', '2', '--rate', '20', '--env', 'NCCL_EXPORTER_KERNEL_TIMING=on')
        self.eventually(lambda: max(self.samples('nccl_collective_timed_operations_total'), default=0) > 10)
        file = self.keep(COMMANDS['Kubernetes'], POD_NAME='trainer-0')
        self.assertEqual(file.name, 'trainer-0.json')
        self.assertEqual(json.loads(file.read_text())['job']['processes'], 2)


if __name__ == '__main__':
    report.main()
