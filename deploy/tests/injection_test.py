#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The policy and the component that bring the plugin into pods: which containers they change, and how."""
import copy
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

DEPLOY = pathlib.Path(os.path.abspath('deploy'))
sys.path.insert(0, str(DEPLOY / 'tests'))
import admission_model
import kubernetes_model
import report
from bases import HAS_CEL, KUBERNETES, base, kustomize, objects

NO_CEL = 'no CEL: tools/fetch-kubernetes-schemas fetches it, with npm'
TEMPLATE = objects(KUBERNETES / 'inject-template/pod-template.yaml')[0]
GPUS = {'resources': {'limits': {'nvidia.com/gpu': '8'}}}
CHOICES = [  # containers, what else the pod has, and which containers are changed in a namespace that asks for it
    ([{}], {}, []),
    ([GPUS], {}, [0]),
    ([{}, GPUS], {}, [1]),
    ([{'resources': {'limits': {'cpu': '1', 'memory': '1Gi'}}}], {}, []),
    ([{'resources': {'limits': {'nvidia.com/mig-1g.10gb': '1'}}}], {}, [0]),
    ([{'resources': {'limits': {'nvidia.com/gpu.shared': '1'}}}], {}, [0]),
    ([{'resources': {'claims': [{'name': 'gpu'}]}}, {'resources': {'claims': []}}], {}, [0]),
    ([{**GPUS, 'env': [{'name': 'NCCL_PROFILER_PLUGIN', 'value': 'mine'}]}], {}, []),
    ([{**GPUS, 'env': [{'name': 'A', 'value': 'b'}], 'volumeMounts': [{'name': 'data', 'mountPath': '/data'}]}], {'volumes': [{'name': 'data'}]}, [0]),
    ([{**GPUS, 'volumeMounts': [{'name': 'own', 'mountPath': '/run/nccl-exporter'}]}], {'volumes': [{'name': 'own'}]}, []),
    ([GPUS], {'volumes': [{'name': 'nccl-exporter-segments'}]}, []),
]
OWNERS = [  # labels of a pod, and the job that it is of: an outer owner wins over the jobs that it makes
    ({}, ''),
    ({'app': 'train'}, ''),
    ({'job-name': 'old'}, 'old'),
    ({'job-name': 'llama', 'batch.kubernetes.io/job-name': 'llama'}, 'llama'),
    ({'jobset.sigs.k8s.io/jobset-name': 'set', 'job-name': 'set-workers-0', 'batch.kubernetes.io/job-name': 'set-workers-0'}, 'set'),
    ({'training.kubeflow.org/job-name': 'torch', 'training.kubeflow.org/replica-type': 'worker'}, 'torch'),
    ({'training.kubeflow.org/job-name': 'mpi', 'batch.kubernetes.io/job-name': 'mpi-launcher'}, 'mpi'),
    ({'ray.io/cluster': 'ray', 'ray.io/group': 'workers'}, 'ray'),
    ({'leaderworkerset.sigs.k8s.io/name': 'serve', 'leaderworkerset.sigs.k8s.io/group-index': '1'}, 'serve'),
    ({'jobset.sigs.k8s.io/jobset-name': '', 'job-name': 'alone'}, 'alone'),
]


def job_of(pod):
    return [variable.get('value', '') for variable in pod['spec']['containers'][0]['env'] if variable['name'] == 'NCCL_EXPORTER_JOB']


class Injection(unittest.TestCase):
    maxDiff = None

    @staticmethod
    def pod(containers, more, **metadata):
        return {'metadata': {'name': 'x', **metadata}, 'spec': {'containers': [{'name': f'c{i}', **own} for i, own in enumerate(containers)], **more}}

    @staticmethod
    def changed_containers(before, after):
        return [i for i, (old, new) in enumerate(zip(before['spec']['containers'], after['spec']['containers'])) if old != new]

    @unittest.skipUnless(HAS_CEL, NO_CEL)
    def test_the_policy_chooses_containers_with_gpus(self):
        pods = [self.pod(containers, more) for containers, more, _ in CHOICES]
        made = admission_model.changed(base('inject')[0], pods)
        self.assertEqual([self.changed_containers(*pair) for pair in zip(pods, made)], [chosen for _, _, chosen in CHOICES])
        self.assertEqual(admission_model.changed(base('inject')[0], made), made, 'a second time changes nothing')

    @unittest.skipUnless(HAS_CEL, NO_CEL)
    def test_the_policy_makes_pods_that_kubernetes_takes(self):
        pods = [self.pod(containers, more) for containers, more, _ in CHOICES]
        for made, (containers, more, chosen) in zip(admission_model.changed(base('inject')[0], pods), CHOICES):
            self.assertEqual([volume['name'] for volume in made['spec'].get('volumes', [])],
                             [volume['name'] for volume in more.get('volumes', [])] + (['nccl-exporter-segments', 'nccl-exporter-plugin'] if chosen else []))
            self.assertEqual(kubernetes_model.faults_of({'apiVersion': 'v1', 'kind': 'Pod', **made}), [])
            for i in chosen:
                names = [variable['name'] for variable in made['spec']['containers'][i]['env']]
                own = [variable['name'] for variable in containers[i].get('env', [])]
                self.assertEqual(names[len(names) - len(own):], own, "the container's own come last, and win")
                self.assertEqual(made['spec']['containers'][i]['env'][0], {'name': 'CONTAINER_NAME', 'value': f'c{i}'})

    @unittest.skipUnless(HAS_CEL, NO_CEL)
    def test_the_policy_names_the_job(self):
        pods = [self.pod([GPUS], {}, labels=labels) for labels, _ in OWNERS]
        self.assertEqual([job_of(pod) for pod in admission_model.changed(base('inject')[0], pods)], [[job] for _, job in OWNERS])

    def test_the_policy_is_in_force_in_namespaces_that_ask_for_it_but_for_pods_that_opt_out(self):
        """Nor where Pod Security would refuse its pods."""
        policy, binding = base('inject')
        self.assertEqual(policy['spec']['matchConstraints']['objectSelector']['matchExpressions'],
                         [{'key': 'nccl-exporter/inject', 'operator': 'NotIn', 'values': ['disabled']}])
        self.assertEqual(binding['spec']['matchResources']['namespaceSelector'],
                         {'matchLabels': {'nccl-exporter/inject': 'enabled'},
                          'matchExpressions': [{'key': 'pod-security.kubernetes.io/enforce', 'operator': 'NotIn', 'values': ['baseline', 'restricted']}]})

    def test_the_template_adds_what_the_policy_adds(self):
        """All but the container's name, which the template does not know."""
        text = ''.join(mutation['jsonPatch']['expression'] for mutation in base('inject')[0]['spec']['mutations'])
        self.assertEqual(sorted([*(patch['value']['name'] for patch in TEMPLATE), 'CONTAINER_NAME']), sorted(re.findall(r'name: "([\w-]+)"', text)))

    @unittest.skipUnless(HAS_CEL, NO_CEL)
    def test_the_template_makes_the_pod_that_the_policy_makes(self):
        """All but the container's name, and the job's, which the template takes from the label of a Job."""
        pod = self.pod([{**GPUS, 'env': [], 'volumeMounts': []}], {'volumes': []}, labels={'batch.kubernetes.io/job-name': 'llama'})
        [made], by_template = admission_model.changed(base('inject')[0], [pod]), {'template': copy.deepcopy(pod)}
        admission_model.add({'spec': by_template}, TEMPLATE)
        [job] = [variable for variable in by_template['template']['spec']['containers'][0]['env'] if variable['name'] == 'NCCL_EXPORTER_JOB']
        self.assertEqual(job.pop('valueFrom'), {'fieldRef': {'fieldPath': "metadata.labels['batch.kubernetes.io/job-name']"}})
        job['value'] = 'llama'
        self.assertEqual(made['spec']['containers'][0]['env'].pop(0)['name'], 'CONTAINER_NAME')
        self.assertEqual(by_template['template'], made)

    @unittest.skipUnless(kustomize(), 'neither kustomize nor kubectl is installed')
    def test_the_component_changes_the_jobs_that_ask_for_it(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(KUBERNETES / 'inject-template', pathlib.Path(folder, 'component'))
            app = pathlib.Path(folder, 'app')
            app.mkdir()
            jobs = [{'apiVersion': 'batch/v1', 'kind': 'Job', 'metadata': {'name': name, 'annotations': annotations},
                     'spec': {'template': {'spec': {'restartPolicy': 'Never', 'volumes': [], 'containers': [
                         {'name': 'train', 'image': 'x', 'env': [{'name': 'A', 'value': 'b'}], 'volumeMounts': []}]}}}}
                    for name, annotations in (('measured', {'nccl-exporter/inject': 'enabled'}), ('other', {'a': 'b'}))]
            (app / 'jobs.yaml').write_text(yaml.safe_dump_all(jobs))
            (app / 'kustomization.yaml').write_text('resources: [jobs.yaml]\ncomponents: [../component]\n')
            output = subprocess.run([*kustomize(), app], check=True, capture_output=True, text=True).stdout
        made = {(thing['kind'], thing['metadata']['name']): thing for thing in yaml.safe_load_all(output)}
        self.assertEqual(made['Job', 'other'], jobs[1])
        self.assertEqual(kubernetes_model.faults_of(made['Job', 'measured']), [])
        pod = made['Job', 'measured']['spec']['template']['spec']
        self.assertEqual([variable['name'] for variable in pod['containers'][0]['env']],
                         ['NODE_NAME', 'POD_UID', 'POD_NAMESPACE', 'POD_NAME', 'NCCL_EXPORTER_JOB', 'NCCL_EXPORTER_DIR', 'NCCL_PROFILER_PLUGIN', 'A'])
        self.assertEqual({mount['name']: mount['mountPath'] for mount in pod['containers'][0]['volumeMounts']},
                         {'nccl-exporter-segments': '/run/nccl-exporter', 'nccl-exporter-plugin': '/opt/nccl-exporter'})
        self.assertEqual(len(pod['volumes']), 2)

    def test_a_pod_mounts_a_directory_of_its_own(self):
        """Regression: a process of another pod with the same user id truncated a segment, and the job died of SIGBUS."""
        segments = [{'name': 'nccl-exporter-segments', 'mountPath': '/run/nccl-exporter', 'subPathExpr': '$(POD_UID)'}]

        def is_own(container):
            uid = {'name': 'POD_UID', 'valueFrom': {'fieldRef': {'fieldPath': 'metadata.uid'}}}
            mounts = [mount for mount in container['volumeMounts'] if mount['mountPath'] == '/run/nccl-exporter']
            return uid in container['env'] and mounts == segments
        values = [patch['value'] for patch in TEMPLATE]
        made = [{'env': values, 'volumeMounts': [value for value in values if 'mountPath' in value]}]
        pod = self.pod([GPUS, GPUS], {})
        if HAS_CEL:
            made += admission_model.changed(base('inject')[0], [pod])[0]['spec']['containers']
        self.assertEqual([is_own(container) for container in made], [True] * len(made))
        self.assertIn('subPathExpr: "$(POD_UID)"', base('inject')[0]['spec']['mutations'][1]['jsonPatch']['expression'])


if __name__ == '__main__':
    report.main()
