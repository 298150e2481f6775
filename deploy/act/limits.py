# SPDX-License-Identifier: Apache-2.0
"""Limits of the scripts beside this file, which act on findings (docs/findings.schema.json): which findings, which jobs, which node,
and how many nodes a day. They refuse where one of them is passed, and act only with --do."""
import argparse
import contextlib
import fcntl
import fnmatch
import json
import os
import re
import sys
import time

DAY_SECONDS = 86400
NEEDED = {'id', 'kind', 'severity', 'nccl_job', 'namespace', 'uid', 'headline', 'culprits', 'culprits_count'}
REFUSED = 3  # exit code
# No list and no pattern of nodes, such as Slurm's node[1-9].
NODE_NAME = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]{0,252}')


class Refusal(Exception):
    """The reason why nothing is done."""


def add_flags(parser):
    parser.add_argument('--do', action='store_true', help='act; without it, only print what would be done')
    parser.add_argument('--jobs', required=True, metavar='PATTERNS', help="jobs to act for, with commas: as nccl_job has them (in Slurm the number), or patterns as 'llama-*'; with a namespace NAMESPACE/NAME")
    parser.add_argument('--kinds', default='hang_culprit', help='kinds of findings to act on, with commas (default: %(default)s)')
    parser.add_argument('--nodes-a-day', type=int, default=1, metavar='N', help='nodes to act on in 24 hours (default: %(default)s)')
    parser.add_argument('--most-culprits', type=int, default=1, metavar='N', help='do nothing if a finding names more ranks (default: %(default)s)')


def file_in_a_folder(path):
    folder = os.path.dirname(path) or '.'
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f'{folder} is no directory')
    return path


def add_history_flag(parser):
    parser.add_argument('--history', required=True, type=file_in_a_folder, metavar='FILE', help='where the actions are kept, which all that act share')


def job_of(finding):
    """NAMESPACE/NAME, or NAME where it has no namespace."""
    return '/'.join(part for part in (finding['namespace'], finding['nccl_job']) if part)


def no_more_names(_):
    return ()


def node_of(finding, flags, names_of=no_more_names):
    """The node that the finding names. Refuses unless it names one, by so few ranks, for one of the jobs. names_of(finding) has further names of the job."""
    kind, severity = finding['kind'], finding['severity']
    if kind not in flags.kinds.split(','):
        raise Refusal(f'{kind} is none of {flags.kinds}')
    if severity == 'info' or (kind.startswith('hang_') and severity != 'critical'):
        raise Refusal(f'the finding is {severity}: it may end by itself')
    nodes = sorted({culprit['host'] for culprit in finding['culprits']})
    if len(nodes) != 1 or finding['culprits_count'] > flags.most_culprits:
        raise Refusal(f"{finding['culprits_count']} ranks on {len(nodes)} nodes are named")
    if not NODE_NAME.fullmatch(nodes[0]) or nodes[0].upper() == 'ALL':
        raise Refusal(f'{nodes[0]!r} is no name of a node')
    job = job_of(finding)

    def is_wanted(name):
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in flags.jobs.split(','))
    if not job or not (is_wanted(job) or any(map(is_wanted, names_of(finding)))):
        raise Refusal(f"job '{job}' is none of {flags.jobs}")
    return nodes[0]


def check_past(past, finding, node, flags, now):
    """`past` has what was done: time, node, job and id of the finding. Of each job one node is acted on in a day."""
    today = [entry for entry in past if now - entry['time'] < DAY_SECONDS]
    if any(entry['id'] == finding['id'] and entry['node'] == node for entry in past):
        raise Refusal('this finding was acted on before')
    if any(entry['node'] == node for entry in today):
        raise Refusal(f'{node} was acted on in the last 24 hours')
    if others := sorted(entry['node'] for entry in today if entry['job'] == job_of(finding)):
        raise Refusal(f'{others[0]} was acted on for the same job in the last 24 hours')
    if len({entry['node'] for entry in today}) >= flags.nodes_a_day:
        raise Refusal(f'{flags.nodes_a_day} nodes were acted on in the last 24 hours')


@contextlib.contextmanager
def history(path):
    """Past actions, and a function that adds one. No other process reads or adds meanwhile."""
    with open(path, 'a+', encoding='utf-8') as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        past = [json.loads(line) for line in file]

        def add(entry):
            file.write(json.dumps(entry) + '\n')
            file.flush()
        yield past, add


def run(plan, parser, names_of=no_more_names):
    """Reads a finding from standard input, as `nccl-exporter wait` prints it. plan(finding, node, flags) says what is to be done: texts
    and the functions that do it. It is done if the limits allow it, and counts before it begins: what fails is not repeated. names_of: as in node_of()."""
    flags = parser.parse_args()
    text = sys.stdin.read()
    if not text.strip():
        return 0  # the wait has ended without a finding
    try:
        finding = json.loads(text)
    except ValueError:
        finding = None
    if not isinstance(finding, dict) or not NEEDED <= finding.keys():
        parser.error('standard input is no finding of nccl-exporter wait')
    now = time.time()
    try:
        node = node_of(finding, flags, names_of)
        steps = plan(finding, node, flags)
        with history(flags.history) as (past, add):
            check_past(past, finding, node, flags, now)
            if flags.do:
                add({'time': now, 'node': node, 'job': job_of(finding), 'id': finding['id'], 'headline': finding['headline']})
    except Refusal as refusal:
        print(f'not done: {refusal}', file=sys.stderr)
        return REFUSED
    for text, do in steps:
        print(text if flags.do else f'not without --do: {text}', flush=True)
        if flags.do:
            do()
    return 0


def parser_of(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_flags(parser)
    return parser
