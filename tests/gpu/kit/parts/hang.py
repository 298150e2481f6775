# SPDX-License-Identifier: Apache-2.0
"""Hang: a rank that does not join an AllReduce, and one that is killed. Is it named, after how long, and does the job end then?"""
import pathlib
import subprocess
import time

from machine import objects
from verdict import at_most, line

NAME = 'hang'
LIMIT_SECONDS = 120
FAULTY_RANK = 1
PATIENCE = 60
END_SECONDS = 30


def names_rank(findings, pid):
    """The headline of the finding whose culprit is this process, and nothing else."""
    for finding in findings:
        if [culprit['pid'] for culprit in finding['culprits']] == [pid]:
            return finding['headline']
    return None


def pid_of(daemon, rank):
    for name, labels, _ in daemon.samples():
        if name == 'nccl_rank_info' and labels.get('rank') == str(rank):
            return int(labels['pid'])
    return None


def wait_for(what, seconds):
    """The first answer that is one, and when it came; (None, seconds) where none comes."""
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        found = what()
        if found:
            return found, time.monotonic() - began
        time.sleep(0.25)
    return None, seconds


def run_fault(machine, folder, is_killed):
    fault, resume = pathlib.Path(folder) / 'fault', pathlib.Path(folder) / 'resume'
    options = dict(machine.shape(), faulty_rank=FAULTY_RANK, is_killed=is_killed, bytes=1 << 20, operations=40, pause_us=10000, directory=folder,
                   limit_seconds=machine.seconds(LIMIT_SECONDS))
    with machine.daemon(folder) as daemon:
        job = machine.start('loop', options, **machine.with_plugin(folder))
        try:
            begun, _ = wait_for(lambda: fault.exists() or job.poll() is not None, machine.seconds(PATIENCE))
            if job.poll() is not None or not begun:
                return {'problem': 'the job did not come to the fault'}
            pid = pid_of(daemon, FAULTY_RANK)
            headline, seconds = wait_for(lambda: names_rank(daemon.findings(), pid), PATIENCE)
            resume.write_text('')
            result = {'headline': headline, 'named_after_seconds': round(seconds, 1)}
            try:
                output, _ = job.communicate(timeout=machine.seconds(END_SECONDS))
            except subprocess.TimeoutExpired:
                return dict(result, problem=f'the job did not end within {END_SECONDS} s')
            if job.returncode != 0:
                return dict(result, problem=f'the job ended with status {job.returncode}')
            return dict(result, ranks=list(objects(output.splitlines())))
        finally:
            job.kill()


def measure(machine, data, save):
    for name, is_killed in (('absent', False), ('killed', True)):
        with machine.folder() as folder:
            data[name] = run_fault(machine, folder, is_killed)
        save()


def judge(data):
    lines = []
    for name in ('absent', 'killed'):
        found = data.get(name, {'problem': 'the part did not come so far'})
        if found.get('headline'):
            lines.append(at_most(f'{name} named', found['named_after_seconds']))
        else:
            lines.append(line(f'{name} named', False, found.get('problem', f'not within {PATIENCE} s')))
        if 'problem' in found:
            lines.append(line('jobs end', False, found['problem'], name))
        else:
            lines.append(at_most('destroy', max(rank['destroy_seconds'] for rank in found['ranks']), about=name))
    return lines
