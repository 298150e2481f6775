#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The scripts that act on findings: each limit, and what they ask of Slurm, Kubernetes, NVSentinel and Alertmanager, which are played."""
import argparse
import concurrent.futures
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

ACT = pathlib.Path(os.path.abspath('deploy/act'))
sys.path[:0] = [str(ACT), str(ACT / 'tests'), str(ACT.parent / 'tests')]
sys.dont_write_bytecode = True
import kubernetes_model
import limits
import played
import report
from bases import kustomize, objects
from kubernetes import client
from played import finding

import yaml

NOW = 1700000000.0
ALERTMANAGER = '/usr/bin/prometheus-alertmanager'
NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def script(name):
    loader = importlib.machinery.SourceFileLoader(name.replace('-', '_'), str(ACT / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


def flags(*arguments):
    return limits.parser_of('').parse_args(['--jobs=*', *arguments])


def eventually(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.history = self.folder / 'acted.jsonl'

    def run_script(self, name, given, *arguments, path=None):
        environment = {**os.environ, 'PATH': f"{path or self.folder}:{os.environ['PATH']}", 'PYTHONDONTWRITEBYTECODE': '1'}
        return subprocess.run([ACT / name, '--jobs=*', f'--history={self.history}', *arguments], input=given if isinstance(given, str) else json.dumps(given),
                              capture_output=True, text=True, env=environment, timeout=60)


class Limits(unittest.TestCase):
    def refusal(self, given, *arguments, past=(), now=NOW):
        try:
            node = limits.node_of(given, flags(*arguments))
            limits.check_past(past, given, node, flags(*arguments), now)
        except limits.Refusal as refusal:
            return str(refusal)
        self.assertEqual(node, given['culprits'][0]['host'])
        return ''

    def test_a_critical_hang_with_one_culprit_is_acted_on(self):
        self.assertEqual('', self.refusal(finding()))

    def test_kinds_are_those_that_are_named(self):
        late = finding(kind='late_rank', severity='warning')
        self.assertEqual('late_rank is none of hang_culprit', self.refusal(late))
        self.assertEqual('', self.refusal(late, '--kinds=hang_culprit,late_rank'))

    def test_a_hang_that_may_end_by_itself_is_left_alone(self):
        self.assertIn('may end by itself', self.refusal(finding(severity='warning')))
        self.assertIn('may end by itself', self.refusal(finding(kind='process_killed', severity='info'), '--kinds=process_killed'))

    def test_jobs_are_those_that_match(self):
        self.assertIn("job '4711' is none of", self.refusal(finding(), '--jobs=4712,llama-*'))
        self.assertEqual('', self.refusal(finding(nccl_job='llama-7b'), '--jobs=4712,llama-*'))
        in_pod = finding(namespace='research', nccl_job='llama')
        self.assertIn("job 'research/llama' is none of", self.refusal(in_pod, '--jobs=llama,prod/*'))
        self.assertEqual('', self.refusal(in_pod, '--jobs=research/*'))
        self.assertIn("job '' is none of", self.refusal(finding(nccl_job='')), 'a job without a name is never acted on')

    def test_nothing_is_done_where_several_are_named(self):
        self.assertIn('2 ranks on 1 nodes are named', self.refusal(finding('a', 'a')))
        self.assertEqual('', self.refusal(finding('a', 'a'), '--most-culprits=8'))
        self.assertIn('2 ranks on 2 nodes are named', self.refusal(finding('a', 'b'), '--most-culprits=8'))
        self.assertIn('0 ranks on 0 nodes are named', self.refusal(finding(culprits=[], culprits_count=0)))
        self.assertIn('9 ranks on 1 nodes are named', self.refusal(finding(culprits_count=9), '--most-culprits=8'), 'more than are listed')

    def test_a_name_that_may_be_several_nodes_is_none(self):
        for name in '', 'ALL', 'all', 'node[1-9]', 'a,b', '-a', 'a b', '$(reboot)':
            self.assertIn('is no name of a node', self.refusal(finding(name)), name)

    def test_nodes_in_a_day_are_limited(self):
        def acted(number, hours_ago):
            return {'time': NOW - hours_ago * 3600, 'node': f'n{number}', 'job': f'{number}', 'id': f'{number}'}
        self.assertIn('1 nodes were acted on', self.refusal(finding(), past=[acted(1, 23)]))
        self.assertEqual('', self.refusal(finding(), past=[acted(1, 25)]))
        self.assertEqual('', self.refusal(finding(), '--nodes-a-day=3', past=[acted(1, 1), acted(2, 2), acted(3, 25)]))
        self.assertIn('3 nodes were acted on', self.refusal(finding(), '--nodes-a-day=3', past=[acted(1, 1), acted(2, 2), acted(3, 3)]))

    def test_a_job_costs_one_node_a_day_and_a_node_is_acted_on_once(self):
        other = {'time': NOW - 60, 'node': 'gpu-node-1', 'job': '4711', 'id': 'b'}
        self.assertIn('gpu-node-1 was acted on for the same job', self.refusal(finding(), '--nodes-a-day=9', past=[other]))
        same = {'time': NOW - 60, 'node': 'gpu-node-7', 'job': '4700', 'id': 'c'}
        self.assertIn('gpu-node-7 was acted on', self.refusal(finding(), '--nodes-a-day=9', past=[same]))

    def test_a_finding_is_acted_on_once_in_its_life(self):
        before = {'time': NOW - 9 * limits.DAY_SECONDS, 'node': 'gpu-node-7', 'job': '4711', 'id': finding()['id']}
        self.assertIn('this finding was acted on before', self.refusal(finding(), past=[before]))


class Slurm(Folder):
    def setUp(self):
        super().setUp()
        self.scontrol = played.Scontrol(self.folder)

    def test_without_do_it_only_prints_and_counts_nothing(self):
        for _ in range(2):
            done = self.run_script('act-slurm', finding(), '--drain', '--requeue')
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            self.assertIn("not without --do: scontrol update NodeName=gpu-node-7 State=DRAIN 'Reason=nccl-exporter 0123456789abcdef: Job 4711 hangs", done.stdout)
            self.assertIn('not without --do: scontrol requeue 4711\n', done.stdout)
        self.assertEqual([], self.scontrol.changes())

    def test_what_can_never_act_ends_before_it_waits(self):
        for arguments, why in ((('--do',), 'give --drain, --requeue or both'), (('--drain', '--history', '/none/acted.jsonl'), '/none is no directory')):
            done = self.run_script('act-slurm', finding(), *arguments)
            self.assertEqual(2, done.returncode)
            self.assertIn(why, done.stderr)

    def test_drains_and_requeues_once(self):
        done = self.run_script('act-slurm', finding('gpu-node-7.example.org'), '--drain', '--requeue', '--do')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        drain, requeue = self.scontrol.changes()
        self.assertTrue(drain.startswith('update NodeName=gpu-node-7 State=DRAIN Reason=nccl-exporter 0123456789abcdef: Job 4711 hangs'), drain)
        self.assertEqual('requeue 4711', requeue)
        again = self.run_script('act-slurm', finding('gpu-node-7.example.org'), '--drain', '--requeue', '--do')
        self.assertEqual((again.returncode, again.stderr), (limits.REFUSED, 'not done: this finding was acted on before\n'))
        self.assertEqual(2, len(self.scontrol.changes()))

    def test_does_nothing_for_a_job_of_another_user_or_node_or_without_a_number(self):
        for changed, why in ((finding(uid=1001), 'job 4711 is not of user 1001'), (finding('gpu-node-8'), 'job 4711 does not run on gpu-node-8'),
                             (finding(nccl_job='4711; reboot'), "'4711; reboot' is no job of Slurm")):
            done = self.run_script('act-slurm', changed, '--drain', '--do', '--nodes-a-day=9')
            self.assertEqual((done.returncode, done.stderr), (limits.REFUSED, f'not done: {why}\n'))
        self.assertEqual([], self.scontrol.changes())
        self.assertFalse(self.history.exists(), 'what was refused counts for nothing')

    def test_the_reason_is_one_harmless_line(self):
        self.run_script('act-slurm', finding(headline='a\n`b` $(c) "d" ' + 'x' * 300), '--drain', '--do')
        [drain] = self.scontrol.changes()
        reason = drain.split('Reason=')[1]
        self.assertLessEqual(len(reason), 200)
        self.assertNotRegex(reason, r'[`$"\n]')

    def test_jobs_may_be_those_of_an_account_or_a_partition(self):
        for pattern, is_wanted in (('4712,account:resea*', True), ('partition:h100', True), ('4711', True), ('research', False), ('account:h100', False)):
            with self.subTest(pattern):
                done = self.run_script('act-slurm', finding(), f'--jobs={pattern}', '--drain')
                self.assertEqual((done.returncode, done.stderr), (0, '') if is_wanted else (limits.REFUSED, f"not done: job '4711' is none of {pattern}\n"))

    def test_a_job_that_slurm_does_not_know_is_left_alone(self):
        for job, why in (('4700', 'job 4700 is not known: squeue'), ('4701', 'job 4701 does not run')):
            done = self.run_script('act-slurm', finding(nccl_job=job), '--drain', '--do')
            self.assertEqual(limits.REFUSED, done.returncode)
            self.assertIn(f'not done: {why}', done.stderr)

    def test_what_is_no_finding_is_refused_in_one_line(self):
        for text in ('no finding in 24 h', '3', '[]', '{}'):
            done = self.run_script('act-slurm', text, '--drain', '--do')
            self.assertEqual(2, done.returncode)
            self.assertIn('standard input is no finding of nccl-exporter wait', done.stderr.splitlines()[-1])

    def test_of_two_that_act_at_once_one_acts(self):
        """The limit of one node a day, by processes that wait for the same history."""
        given = [finding(f'gpu-node-{6 + number}', nccl_job=str(4711 + number), id=f'{number:016x}') for number in range(2)]
        with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
            done = sorted(pool.map(lambda one: self.run_script('act-slurm', one, '--drain', '--do'), given), key=lambda one: one.returncode)
        self.assertEqual([0, limits.REFUSED], [one.returncode for one in done])
        self.assertEqual('not done: 1 nodes were acted on in the last 24 hours\n', done[1].stderr)
        self.assertEqual(1, len(self.scontrol.changes()))

    def test_what_slurm_refuses_is_said_and_counts(self):
        done = self.run_script('act-slurm', finding(nccl_job='13'), '--requeue', '--do')
        self.assertEqual((done.returncode, done.stderr), (1, 'scontrol requeue 13: Requested operation is not supported\n'))
        self.assertEqual(1, len(self.history.read_text().splitlines()))

    def test_a_wait_without_a_finding_is_nothing_to_do(self):
        done = self.run_script('act-slurm', '', '--drain', '--do')
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, '', ''))


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.script = script('act-kubernetes')
        self.api = played.Kubernetes('gpu-node-6', 'gpu-node-7', 'gpu-node-8', pods=[
            ('llama-0-x', {'metadata': {'labels': {'job-name': 'llama'}}, 'spec': {'nodeName': 'gpu-node-7'}})])
        self.said = io.StringIO()

    def act(self, node='gpu-node-7', *arguments):
        parser = limits.parser_of('')
        parser.add_argument('--evict', action='store_true')
        return self.script.Act(self.api, node, parser.parse_args(['--jobs=research/*', *arguments]))

    def round(self, act, *findings):
        with contextlib.redirect_stdout(self.said):
            act.round(list(findings))

    @staticmethod
    def of_llama(*hosts, **changes):
        return finding(*hosts, **{'namespace': 'research', 'nccl_job': 'llama', **changes})

    def test_without_do_it_only_says_once_what_it_would_do(self):
        act = self.act()
        for _ in range(3):
            self.round(act, self.of_llama())
        self.assertEqual(([], []), (self.api.patches, self.api.events))
        self.assertEqual(1, self.said.getvalue().count('would set NCCLCulprit of gpu-node-7 to True: NamedByFinding, job research/llama, finding 0123456789abcdef'))

    def test_a_condition_and_an_event_come_with_the_finding_and_go_with_it(self):
        act = self.act('gpu-node-7', '--do')
        self.round(act)
        self.assertEqual([], self.api.patches, 'no condition before the first finding')
        for _ in range(3):
            self.round(act, self.of_llama())
        condition = self.api.condition('gpu-node-7')
        self.assertEqual(('True', 'NamedByFinding'), (condition['status'], condition['reason']))
        self.assertTrue(condition['message'].startswith('job research/llama, finding 0123456789abcdef: Job 4711 hangs'))
        self.round(act)
        self.round(act)
        self.assertEqual(('False', 'FindingEnded'), (self.api.patches[-1]['status'], self.api.patches[-1]['reason']))
        self.assertEqual(['Warning', 'Normal'], [event['type'] for _, event in self.api.events])
        self.assertEqual('True', self.api.condition('gpu-node-7', 'Ready')['status'], 'the others stay')
        self.assertEqual([], self.api.evictions)

    def test_what_it_sends_is_as_the_api_has_it(self):
        act = self.act('gpu-node-7', '--do', '--evict')
        self.round(act, self.of_llama())
        [(path, event)] = self.api.events
        self.assertEqual('/api/v1/namespaces/default/events', path)
        self.assertEqual([], kubernetes_model.faults_of_model(self.api.patches[0], client.V1NodeCondition, 'condition'))
        self.assertEqual([], kubernetes_model.faults_of_model(event, client.CoreV1Event, 'event'))
        [(path, eviction)] = self.api.evictions
        self.assertEqual('/api/v1/namespaces/research/pods/llama-0-x/eviction', path)
        self.assertEqual([], kubernetes_model.faults_of_model(eviction, client.V1Eviction, 'eviction'))

    def test_evicts_no_pod_of_another_job_or_node(self):
        for pod in ({'metadata': {'labels': {'job-name': 'other'}}, 'spec': {'nodeName': 'gpu-node-7'}},
                    {'metadata': {'labels': {'job-name': 'llama'}}, 'spec': {'nodeName': 'gpu-node-8'}}, {'metadata': {}, 'spec': {}}):
            self.setUp()
            self.api.pods['llama-0-x'] = pod
            with contextlib.redirect_stderr(self.said):
                self.round(self.act('gpu-node-7', '--do', '--evict'), self.of_llama())
            self.assertIn('not evicted: research/llama-0-x is not of job llama on this node', self.said.getvalue())
            self.assertEqual([], self.api.evictions)

    def test_a_finding_that_names_another_node_is_not_this_ones(self):
        self.round(self.act('gpu-node-6', '--do'), self.of_llama())
        self.assertEqual([], self.api.patches)
        self.assertIn('it names another node', self.said.getvalue())

    def test_nodes_in_a_day_are_those_of_the_cluster(self):
        self.round(self.act('gpu-node-6', '--do'), self.of_llama('gpu-node-6'))
        other = self.of_llama('gpu-node-7', nccl_job='gpt', id='b')
        self.round(self.act('gpu-node-7', '--do'), other)
        self.assertIsNone(self.api.condition('gpu-node-7'))
        self.assertIn('not done: b: 1 nodes were acted on in the last 24 hours', self.said.getvalue())
        self.round(self.act('gpu-node-6', '--do'))  # it has ended, and counts
        self.round(self.act('gpu-node-7', '--do'), other)
        self.assertIsNone(self.api.condition('gpu-node-7'))
        self.api.condition('gpu-node-6')['lastTransitionTime'] = '2020-01-01T00:00:00Z'
        self.round(self.act('gpu-node-7', '--do'), other)
        self.assertEqual('True', self.api.condition('gpu-node-7')['status'])

    def test_where_several_nodes_are_named_for_a_job_all_are_taken_back(self):
        acts = {node: self.act(node, '--do', '--nodes-a-day=9') for node in ('gpu-node-6', 'gpu-node-7')}
        # Both look before one of them has written.
        before = self.api.nodes['gpu-node-6']
        self.round(acts['gpu-node-6'], self.of_llama('gpu-node-6', id='a'))
        named, self.api.nodes['gpu-node-6'] = self.api.nodes['gpu-node-6'], {**before, 'status': {'conditions': []}}
        self.round(acts['gpu-node-7'], self.of_llama('gpu-node-7', id='b'))
        self.api.nodes['gpu-node-6'] = named
        self.assertEqual(['True', 'True'], [self.api.condition(node)['status'] for node in acts])
        for _ in range(4):
            for node, act in acts.items():
                self.round(act, self.of_llama(node, id=node[-1]))
        self.assertEqual([('False', 'SeveralNodesNamed')] * 2, [(self.api.condition(node)['status'], self.api.condition(node)['reason']) for node in acts])
        self.assertEqual(4, len(self.api.patches), 'and they stay so')

    def test_asks_for_all_nodes_only_where_a_finding_names_this_one(self):
        act = self.act('gpu-node-7', '--do')
        for _ in range(5):
            self.round(act, finding(kind='late_rank'))
        self.assertEqual(0, self.api.listed)

    def test_runs_beside_a_daemon(self):
        api, daemon = played.serve(lambda method, path, body, headers: self.api(method, path, body, headers.get('Content-Type'))), played.serve(
            lambda *request: {'api': 'v1', 'findings': [self.of_llama()]})
        self.addCleanup(api.shutdown)
        self.addCleanup(daemon.shutdown)
        process = subprocess.Popen([ACT / 'act-kubernetes', '--do', '--jobs=research/*', '--every=0.1', f'--daemon=http://127.0.0.1:{daemon.server_port}',
                                    f'--api=http://127.0.0.1:{api.server_port}'], env={**os.environ, 'NODE_NAME': 'gpu-node-7', 'PYTHONDONTWRITEBYTECODE': '1'},
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            self.assertTrue(eventually(lambda: self.api.condition('gpu-node-7')))
            daemon.shutdown()
            daemon.server_close()
            self.assertIn('NCCLCulprit of gpu-node-7 is True', process.stdout.readline())
            self.assertIn('no round: ', process.stdout.readline())
        finally:
            process.kill()
            process.communicate()

    def test_its_objects_are_those_that_kubernetes_knows(self):
        things = [*objects(ACT / 'role.yaml'), *objects(ACT / 'container.yaml'), *objects(ACT / 'job.yaml')]
        for thing in things:
            if thing['kind'] == 'DaemonSet':  # a patch: what it leaves out is the base's
                thing['spec'] |= {'selector': {}}
                thing['spec']['template'] |= {'metadata': {}}
            self.assertEqual([], kubernetes_model.faults_of(thing))

    @unittest.skipUnless(kustomize(), 'neither kustomize nor kubectl is installed')
    def test_the_daemon_gets_no_token_and_the_script_no_more_than_its_role(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        shutil.copytree(ACT.parent / 'act', pathlib.Path(folder.name, 'act'))  # Bazel's are links
        shutil.copytree(ACT.parent / 'kubernetes', pathlib.Path(folder.name, 'kubernetes'))
        made = list(yaml.safe_load_all(subprocess.run([*kustomize(), pathlib.Path(folder.name, 'act')], check=True, capture_output=True, text=True).stdout))
        [daemons] = [thing for thing in made if thing['kind'] == 'DaemonSet']
        pod = daemons['spec']['template']['spec']
        self.assertFalse(pod['automountServiceAccountToken'])
        mounts = {container['name']: {mount['name'] for mount in container['volumeMounts']} for container in pod['containers']}
        self.assertEqual({'nccl-exporter': {'segments'}, 'act': {'act', 'token'}}, mounts)
        self.assertNotIn('--do', pod['containers'][[c['name'] for c in pod['containers']].index('act')]['args'])
        [policy] = [thing for thing in made if thing['kind'] == 'NetworkPolicy']
        self.assertIn({'port': 443, 'protocol': 'TCP'}, policy['spec']['egress'][0]['ports'])


class NvSentinel(Folder):
    def decoded(self, data):
        self.assertEqual((0, len(data) - 5), (data[0], int.from_bytes(data[1:5], 'big')), 'the frame of gRPC')
        return subprocess.run(['protoc', f"--proto_path={ACT / 'tests'}", '--decode=datamodels.HealthEvents', 'health_event.proto'], input=data[5:],
                              check=True, capture_output=True).stdout.decode()

    def test_without_do_it_only_prints(self):
        done = self.run_script('act-nvsentinel', finding(), '--socket=/nowhere')
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn('not without --do: send {"version": 1, "agent": "nccl-exporter"', done.stdout)

    def test_sends_an_event_to_store_or_to_act_on(self):
        for number, (arguments, wanted) in enumerate((([], {'processingStrategy: 2'}), (['--remediate'], {'processingStrategy: 1', 'isFatal: true'}))):
            path = str(self.folder / f's{number}')
            connector = played.Connector(path)
            done = self.run_script('act-nvsentinel', finding(id=f'{number:016x}'), f'--socket={path}', '--do', f'--history={self.folder}/{number}', *arguments)
            self.assertEqual((done.returncode, done.stderr), (0, ''))
            text = self.decoded(connector.received)
            lines = {line.strip() for line in text.splitlines()}
            self.assertLessEqual({'nodeName: "gpu-node-7"', 'agent: "nccl-exporter"', 'checkName: "NcclHangCulprit"', 'recommendedAction: 5',
                                  'errorCode: "hang_culprit"', 'entityType: "GPU_UUID"', 'entityValue: "GPU-2"'} | wanted, lines, text)
            self.assertEqual('isFatal: true' in wanted, 'isFatal: true' in lines)

    def test_what_the_connector_refuses_is_a_failure(self):
        path = str(self.folder / 's')
        played.Connector(path, status=16)
        done = self.run_script('act-nvsentinel', finding(), f'--socket={path}', '--do')
        self.assertEqual((done.returncode, done.stderr), (1, 'NVSentinel did not take the event: as played\n'))
        gone = self.run_script('act-nvsentinel', finding(id='b'), '--socket=/nowhere', '--do', f'--history={self.folder}/other')
        self.assertEqual(1, gone.returncode)
        self.assertIn("Couldn't connect", gone.stderr)

    def test_an_event_ends_it(self):
        path = str(self.folder / 's')
        connector = played.Connector(path)
        done = subprocess.run([ACT / 'act-nvsentinel', '--healthy', 'gpu-node-7', f'--socket={path}'], capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn('isHealthy: true', self.decoded(connector.received))

    def test_limits_hold(self):
        done = self.run_script('act-nvsentinel', finding('a', 'b'), '--do', '--socket=/nowhere')
        self.assertEqual(limits.REFUSED, done.returncode)
        self.assertEqual('not done: 2 ranks on 2 nodes are named\n', done.stderr)


def notification(*culprits, **changes):
    labels = {'alertname': 'NCCLHangCulprit', 'severity': 'critical', 'nccl_job': '4711', 'uid': '1000', 'gpu_uuid': 'GPU-2', 'pid': '1002'}
    return {'status': 'firing', 'alerts': [{'status': 'firing', 'labels': {**labels, 'hostname': node, **changes}, 'annotations': {'summary': 'Job 4711 hangs'},
                                            'startsAt': '2026-11-29T12:00:00Z', 'fingerprint': node} for node in culprits]}


class Webhook(Folder):
    def setUp(self):
        super().setUp()
        self.scontrol = played.Scontrol(self.folder)
        (self.folder / 'token').write_text('secret\n')
        command = [ACT / 'act-slurm', '--jobs=*', f'--history={self.history}', '--drain', '--do', '--nodes-a-day=9']
        self.process = subprocess.Popen([ACT / 'act-webhook', '--listen=127.0.0.1:0', f"--token-file={self.folder / 'token'}", *command], text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        env={**os.environ, 'PATH': f"{self.folder}:{os.environ['PATH']}", 'PYTHONDONTWRITEBYTECODE': '1'})
        self.addCleanup(self.process.communicate)
        self.addCleanup(self.process.kill)
        self.port = int(self.process.stdout.readline().rpartition(':')[2])

    def post(self, body, token='secret'):
        request = urllib.request.Request(f'http://127.0.0.1:{self.port}/', data=body if isinstance(body, bytes) else json.dumps(body).encode(),
                                         headers={'Authorization': f'Bearer {token}'})
        try:
            with NO_PROXY.open(request, timeout=30) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def test_a_culprit_of_a_critical_hang_reaches_the_script(self):
        self.assertEqual(200, self.post(notification('gpu-node-7')))
        self.assertIn('update NodeName=gpu-node-7 State=DRAIN Reason=nccl-exporter ', self.scontrol.changes()[0])
        self.assertTrue(self.scontrol.changes()[0].endswith(': Job 4711 hangs'))
        self.post(notification('gpu-node-7'))
        self.assertEqual(1, len(self.scontrol.changes()), 'a repeated notification')

    def test_several_nodes_of_a_job_are_left_alone(self):
        self.assertEqual(200, self.post(notification('gpu-node-6', 'gpu-node-7')))
        self.assertEqual([], self.scontrol.changes())

    def test_other_alerts_and_those_that_have_ended_are_nothing_to_do(self):
        ended = notification('gpu-node-7')
        ended['alerts'][0]['status'] = 'resolved'
        for body in ended, notification('gpu-node-7', alertname='NCCLStragglerRank'), notification('gpu-node-7', severity='warning'):
            self.assertEqual(200, self.post(body))
        mixed = notification('gpu-node-6', 'gpu-node-7')
        mixed['alerts'][0]['labels']['nccl_job'] = '4712'
        self.assertEqual(200, self.post(mixed))
        self.assertEqual([], self.scontrol.changes())

    def test_strangers_and_garbage_are_refused(self):
        self.assertEqual(401, self.post(notification('gpu-node-7'), token='guess'))
        for body in b'{', b'[]', b'{"alerts": [{}]}':
            self.assertEqual(400, self.post(body), body)
        self.assertEqual(413, self.post(b''))
        self.assertEqual([], self.scontrol.changes())

    @unittest.skipUnless(os.path.exists(ALERTMANAGER), 'Alertmanager is not installed')
    def test_behind_a_real_alertmanager(self):
        with socket.socket() as probe:
            probe.bind(('127.0.0.1', 0))
            port = probe.getsockname()[1]
        receiver = yaml.safe_load((ACT / 'alertmanager.yml').read_text())
        [hook] = [hook for one in receiver['receivers'] for hook in one.get('webhook_configs', [])]
        hook['url'] = hook['url'].replace(':9095', f':{self.port}')
        hook['http_config']['authorization']['credentials_file'] = str(self.folder / 'token')
        receiver['route']['routes'][0]['group_wait'] = '200ms'
        (self.folder / 'alertmanager.yml').write_text(yaml.safe_dump(receiver))
        alertmanager = subprocess.Popen([ALERTMANAGER, f"--config.file={self.folder / 'alertmanager.yml'}", f"--storage.path={self.folder / 'data'}",
                                         f'--web.listen-address=127.0.0.1:{port}', '--cluster.listen-address='], stderr=subprocess.DEVNULL)
        self.addCleanup(alertmanager.wait)
        self.addCleanup(alertmanager.send_signal, signal.SIGKILL)
        alerts = [{'labels': alert['labels'], 'annotations': alert['annotations']} for alert in notification('gpu-node-7')['alerts']]

        def is_sent():
            request = urllib.request.Request(f'http://127.0.0.1:{port}/api/v2/alerts', data=json.dumps(alerts).encode(), headers={'Content-Type': 'application/json'})
            with contextlib.suppress(OSError):
                return NO_PROXY.open(request, timeout=5).status == 200
        self.assertTrue(eventually(is_sent))
        self.assertTrue(eventually(self.scontrol.changes), 'the node is drained')
        self.assertIn('update NodeName=gpu-node-7 State=DRAIN', self.scontrol.changes()[0])


if __name__ == '__main__':
    report.main()
