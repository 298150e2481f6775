#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plays jobs on NCCL's real host code and compares what the plugin recorded with what the devices did: one line per job.
Exit status 1 if one failed."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import job_table
from documented_segment import Document
from played_job import BUILT, Programs, play, rigs_of
from verdict import judge

# Where Bazel runs the program, and below the root of the repository.
PLACES = ('.', 'bazel-bin')
# Ends with its parent, however that ends.
BUSY_LOOP = [sys.executable, '-c', 'import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass', str(os.getpid())]


def built(path):
    found = next((place for place in PLACES if os.path.exists(os.path.join(place, path))), None)
    return os.path.abspath(os.path.join(found, path)) if found else None


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rig', default=os.environ.get('NCCL_HOST_RIG'), help='folder of a rig, or of one per release (NCCL_HOST_RIG)')
    parser.add_argument('--release', default='', metavar='REGEX', help='only these, as in 2.30')
    parser.add_argument('--jobs', default='', metavar='REGEX', help='only these')
    parser.add_argument('--seeds', default='0-9', metavar='FIRST-LAST', help='of the jobs that are drawn (%(default)s)')
    parser.add_argument('--repeat', type=int, default=1, metavar='N', help='times that each job is played')
    parser.add_argument('--load', type=int, default=0, metavar='K', help='busy loops beside the jobs')
    parser.add_argument('--keep', action='store_true', help='keep the files of jobs that fail, and print where')
    for name, path in zip(Programs._fields, BUILT):
        parser.add_argument(f'--{name}', default=built(path), dest=f'program_{name}', metavar='FILE', help=f'in place of {path}')
    arguments = parser.parse_args()
    arguments.programs = Programs(*(getattr(arguments, f'program_{name}') for name in Programs._fields))
    for name, value in [('rig', arguments.rig), *arguments.programs._asdict().items()]:
        if not value:
            parser.error(f'--{name} is needed')
    return arguments


def line_of(verdict):
    timing = ', '.join(f'{source} ({reason})' for source, reason in sorted(verdict.timing))
    losses = ', '.join(f'{loss} {count}' for loss, count in verdict.losses.most_common(3))
    findings = ', '.join(sorted(verdict.findings))
    return (f'timed {verdict.timed}/{verdict.operations}, compared {verdict.compared}, missed {verdict.missed}, wrong {verdict.wrong}, '
            f'worst {verdict.worst * 100:.2f} %, {timing}{"; " if losses else ""}{losses}{"; findings " if findings else ""}{findings}')


def play_all(arguments):
    seeds = [int(number) for number in arguments.seeds.split('-')]
    jobs = [job for job in job_table.all_jobs(range(seeds[0], seeds[-1] + 1)) if re.search(arguments.jobs, job.name)]
    rigs = [rig for rig in rigs_of(arguments.rig) if re.search(arguments.release, rig.release)]
    document = Document(pathlib.Path('proto/README.md').read_text(encoding='utf-8'))
    passed = failed = 0
    for rig in rigs:
        for job in jobs:
            for _ in range(arguments.repeat):
                is_right = play_one(job, rig, document, arguments)
                passed += is_right
                failed += not is_right
    return passed, failed


def play_one(job, rig, document, arguments):
    folder = tempfile.mkdtemp(prefix='nccl-host-')
    verdict = judge(play(job, rig, arguments.programs, document, folder))
    print(f'{"FAIL" if verdict.faults else "ok":4}  {rig.release:7} {job.name:32} {line_of(verdict)}', flush=True)
    for fault in verdict.faults:
        print(f'      {fault}', flush=True)
    if verdict.faults:
        print(f'      without the plugin: {end_without_plugin(job, rig, document, arguments)}', flush=True)
    if verdict.faults and arguments.keep:
        print(f'      files: {folder}', flush=True)
    else:
        shutil.rmtree(folder)
    return not verdict.faults


def end_without_plugin(job, rig, document, arguments):
    """Whether the job fails by itself, too."""
    with tempfile.TemporaryDirectory(prefix='nccl-host-') as folder:
        played = play(job, rig, arguments.programs._replace(plugin=''), document, folder)
    if played.is_hung:
        return 'hang'
    return f'exit {played.status}: {played.output.strip()}' if played.status else 'the job ends'


def main():
    arguments = parse_arguments()
    loops = [subprocess.Popen(BUSY_LOOP) for _ in range(arguments.load)]
    try:
        passed, failed = play_all(arguments)
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    print(f'{passed} passed, {failed} failed')
    sys.exit(failed != 0 or passed == 0)


if __name__ == '__main__':
    main()
