#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests and the chart: what they render to, whole, and whether it is what Kubernetes takes."""
import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import jsonschema
import yaml

DEPLOY = pathlib.Path(os.path.abspath('deploy'))
sys.path.insert(0, str(DEPLOY / 'tests'))
import kubernetes_model
import report

KUBERNETES, HELM, GRAFANA = DEPLOY / 'kubernetes', DEPLOY / 'helm', DEPLOY / 'grafana'
BASES = ['node', 'monitoring', 'sidecar', 'inject']
NEWER_KINDS = ['MutatingAdmissionPolicy', 'MutatingAdmissionPolicyBinding']  # 1.36
OPERATOR_KINDS = ['ServiceMonitor', 'PodMonitor', 'PrometheusRule']
SCHEMAS = pathlib.Path('/var/cache/nccl-exporter/kubernetes/node_modules')  # where tools/fetch-kubernetes-schemas leaves them
CHART_LABELS = ['app.kubernetes.io/instance', 'app.kubernetes.io/managed-by', 'helm.sh/chart']


def objects(path):
    return list(yaml.safe_load_all(path.read_text()))


def base(name):
    listed = yaml.safe_load((KUBERNETES / name / 'kustomization.yaml').read_text())['resources']
    return [thing for file in listed for thing in objects(KUBERNETES / name / file)]


def all_objects():
    return [thing for name in BASES for thing in base(name)] + [thing for name in ('default', 'all') for thing in rendered(name).values()]


def schema_faults(things):
    output = subprocess.run(['node', DEPLOY / 'tests/validate.mjs', SCHEMAS], input=json.dumps(things), check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def by_name(things):
    return {(thing['kind'], thing['metadata']['name']): thing for thing in things}


def rules():
    return yaml.safe_load((DEPLOY / 'prometheus/nccl-exporter.rules.yml').read_text())


def rendered(name, folder=HELM / 'testdata'):
    """What helm makes of the chart. `render` leaves out the rules, which would be one more copy of them."""
    things = by_name(objects(folder / f'{name}.rendered.yaml'))
    for (kind, _), thing in things.items():
        if kind == 'PrometheusRule':
            assert thing['spec'] is None, 'the rules are kept once: render leaves them out'
            thing['spec'] = rules()
    return things


def merged(values, own):
    return {key: merged(value, own[key]) if isinstance(value, dict) and isinstance(own.get(key), dict) else own.get(key, value)
            for key, value in values.items()} | {key: value for key, value in own.items() if key not in values} if own else values


def rendered_by_go(values):
    chart = yaml.safe_load((HELM / 'nccl-exporter/Chart.yaml').read_text())
    defaults = yaml.safe_load((HELM / 'nccl-exporter/values.yaml').read_text())
    given = {'Values': merged(defaults, values), 'Chart': {'Name': chart['name'], 'Version': chart['version']},
             'Release': {'Name': 'nccl-exporter', 'Namespace': 'nccl-exporter', 'Service': 'Helm'}}
    with tempfile.TemporaryDirectory() as cache:
        output = subprocess.run(['go', 'run', DEPLOY / 'tests/render_chart.go', HELM / 'nccl-exporter'], input=json.dumps(given), check=True,
                                stdout=subprocess.PIPE, text=True, env=os.environ | {'GOCACHE': cache, 'GO111MODULE': 'off', 'GOFLAGS': ''}).stdout
    return by_name(thing for thing in yaml.safe_load_all(output) if thing)


def rendered_by_helm(values):
    output = subprocess.run(['helm', 'template', 'nccl-exporter', HELM / 'nccl-exporter', '--namespace', 'nccl-exporter', '--values', '-'],
                            input=json.dumps(values), check=True, capture_output=True, text=True).stdout
    return by_name(thing for thing in yaml.safe_load_all(output) if thing)


def without_chart_labels(thing):
    thing = copy.deepcopy(thing)
    for label in CHART_LABELS:
        thing['metadata'].get('labels', {}).pop(label, None)
    for container in thing['spec']['template']['spec']['containers'] + thing['spec']['template']['spec']['initContainers'] \
            if thing['kind'] == 'DaemonSet' else []:
        container.pop('imagePullPolicy')
    return thing


def dashboard_files():
    return {path.name: path.read_text() for path in (GRAFANA / 'dashboards').iterdir()}


def dashboards_in(things, namespace):
    """File name to content of ConfigMaps that Grafana's sidecar finds, and that kubectl apply, which keeps what it applied, can take."""
    found = {}
    for thing in things:
        faults = kubernetes_model.faults_of(thing)
        assert not faults, faults
        assert thing['metadata']['namespace'] == namespace and thing['metadata']['labels']['grafana_dashboard'] == '1', thing['metadata']
        assert len(json.dumps(thing)) < 256 * 1024, thing['metadata']['name']
        found |= thing['data']
    return found


def kustomize():
    if shutil.which('kustomize'):
        return ['kustomize', 'build']
    return ['kubectl', 'kustomize'] if shutil.which('kubectl') else None


def pods(things):
    return [thing['spec']['template']['spec'] for thing in things if thing['kind'] in ('DaemonSet', 'Job')]


class Manifests(unittest.TestCase):
    maxDiff = None

    def test_kubernetes_knows_every_object_and_field(self):
        checked = [thing for thing in all_objects() if thing['kind'] not in NEWER_KINDS + OPERATOR_KINDS]
        self.assertGreater(len(checked), 12)
        self.assertEqual([fault for thing in checked for fault in kubernetes_model.faults_of(thing)], [])

    def test_the_model_finds_what_is_wrong(self):
        daemonset = next(thing for thing in base('node') if thing['kind'] == 'DaemonSet')
        daemonset['spec']['template']['spec']['containers'][0]['imag'] = 'x'
        daemonset['spec']['template']['spec']['containers'][0]['readinessProbe']['httpGet']['path'] = 1
        del daemonset['spec']['selector']
        self.assertEqual(len(kubernetes_model.faults_of(daemonset)), 3)

    @unittest.skipUnless(shutil.which('node') and SCHEMAS.is_dir(), 'no schemas: tools/fetch-kubernetes-schemas fetches them, with npm')
    def test_the_schemas_of_kubernetes_and_prometheus_operator_take_every_object(self):
        things = all_objects()
        self.assertTrue({*NEWER_KINDS, *OPERATOR_KINDS} <= {thing['kind'] for thing in things})
        self.assertEqual(schema_faults(things), [])
        wrong = copy.deepcopy([next(thing for thing in things if thing['kind'] == kind) for kind in ('DaemonSet', *NEWER_KINDS[:1], *OPERATOR_KINDS)])
        for thing in wrong:
            thing['spec'] = {**thing['spec'], 'selector': 1, 'groups': 1, 'failurePolicy': 'Perhaps'}
        self.assertEqual(len(schema_faults(wrong)), len(wrong))

    def test_every_file_of_a_base_is_listed(self):
        for name in BASES:
            listed = yaml.safe_load((KUBERNETES / name / 'kustomization.yaml').read_text())['resources']
            files = {path.name for path in (KUBERNETES / name).glob('*.yaml')} - {'kustomization.yaml'}
            self.assertEqual(set(listed), files, name)

    @unittest.skipUnless(kustomize(), 'neither kustomize nor kubectl is installed')
    def test_kustomize_renders_the_bases(self):
        for name in BASES:
            with tempfile.TemporaryDirectory() as folder:  # kustomize follows no links out of the base
                for path in (KUBERNETES / name).iterdir():
                    shutil.copy(path, folder)
                output = subprocess.run([*kustomize(), folder], check=True, capture_output=True, text=True).stdout
            self.assertEqual(by_name(yaml.safe_load_all(output)), by_name(base(name)), name)

    def test_the_prometheus_rule_is_the_projects_rules(self):
        generated = subprocess.run([sys.executable, KUBERNETES / 'generate-prometheus-rule', DEPLOY / 'prometheus/nccl-exporter.rules.yml'],
                                   check=True, capture_output=True, text=True).stdout
        self.assertEqual((KUBERNETES / 'monitoring/prometheusrule.yaml').read_text(), generated)
        self.assertEqual(yaml.safe_load(generated)['spec'], rules())

    def test_the_daemons_containers_have_no_rights(self):
        for pod in pods([thing for name in ('node', 'sidecar') for thing in base(name)]):
            ours = [c for c in pod['initContainers'] + pod['containers'] if c['image'].startswith('nccl-exporter')]
            self.assertEqual(len(ours), 2)
            self.assertEqual(pod['securityContext']['seccompProfile'], {'type': 'RuntimeDefault'})
            for container in ours:
                context = container['securityContext']
                self.assertEqual((context['readOnlyRootFilesystem'], context['allowPrivilegeEscalation'], context['capabilities']['drop']),
                                 (True, False, ['ALL']))
                is_root = context.get('runAsUser') == 0
                self.assertEqual(context['capabilities'].get('add', []), ['CHOWN', 'FOWNER'] if is_root else [])
                self.assertNotEqual(context.get('runAsNonRoot', False), is_root)

    def test_the_daemons_know_the_name_of_their_node(self):
        """Their page shows it; without it they show the pod's."""
        for pod in pods([thing for name in ('node', 'sidecar') for thing in base(name)]):
            daemon = next(c for c in pod['initContainers'] + pod['containers'] if c['name'] == 'nccl-exporter')
            self.assertEqual(daemon.get('env'), [{'name': 'NODE_NAME', 'valueFrom': {'fieldRef': {'fieldPath': 'spec.nodeName'}}}])

    def test_the_daemons_have_room_for_all_that_they_may_hold(self):
        """147 MB, as docs/scaling.md has it."""
        for pod in pods([thing for name in ('node', 'sidecar') for thing in base(name)]):
            daemon = next(c for c in pod['initContainers'] + pod['containers'] if c['name'] == 'nccl-exporter')
            self.assertEqual(daemon['resources']['limits'], {'memory': '256Mi'})

    def test_monitors_leave_the_jobs_labels_alone(self):
        monitors = [thing for thing in base('monitoring') if thing['kind'].endswith('Monitor')]
        endpoints = [endpoint for thing in monitors for endpoint in thing['spec'].get('endpoints', thing['spec'].get('podMetricsEndpoints'))]
        self.assertEqual([endpoint['honorLabels'] for endpoint in endpoints], [True, True])


class Chart(unittest.TestCase):
    maxDiff = None

    def test_default_values_render_to_the_node_base(self):
        expected = {key: thing for key, thing in by_name(base('node')).items() if key[0] != 'Namespace'}
        self.assertEqual({key: without_chart_labels(thing) for key, thing in rendered('default').items()}, expected)

    def test_all_values_render_to_all_kinds(self):
        expected = {key for name in ('node', 'monitoring', 'inject') for key in by_name(base(name)) if key[0] != 'Namespace'}
        self.assertEqual(rendered('all').keys(), expected)

    def test_the_chart_has_the_projects_rules(self):
        self.assertEqual(yaml.safe_load((HELM / 'nccl-exporter/rules.yml').read_text()), rules())
        template = (HELM / 'nccl-exporter/templates/prometheusrule.yaml').read_text()
        text = (HELM / 'nccl-exporter/rules.yml').read_text()
        for replaced in re.findall(r'replace "(.*?)"', template):
            self.assertEqual(text.count(replaced), text.count('alert: '), f'{replaced} is not once in each alert')
        self.assertTrue(template.endswith('{{ $rules | indent 2 }}\n{{- end }}\n'))

    def test_values_fit_the_schema_and_wrong_ones_do_not(self):
        schema = json.loads((HELM / 'nccl-exporter/values.schema.json').read_text())
        values = yaml.safe_load((HELM / 'nccl-exporter/values.yaml').read_text())
        self.assertEqual(values.keys(), schema['properties'].keys() - {'global'})
        jsonschema.validate(values, schema)
        for wrong in ({'retention': '5 minutes'}, {'segmentDirectory': 'run'}, {'imag': {}}, {'extraArgs': ['x']},
                      {'serviceMonitor': {'enabled': True}},
                      {'prometheusRule': {**values['prometheusRule'], 'dashboards': 'grafana'}}, {'image': {'repository': 'x', 'tag': '1', 'pullPolicy': 'Sometimes'}}):
            with self.assertRaises(jsonschema.ValidationError, msg=wrong):
                jsonschema.validate({**values, **wrong}, schema)

    @unittest.skipUnless(shutil.which('go'), 'go, whose template engine is that of Helm, is not installed')
    def test_the_templates_render_to_what_is_kept(self):
        for name in 'default', 'all':
            values = yaml.safe_load((HELM / f'testdata/{name}.values.yaml').read_text())
            self.assertEqual(rendered_by_go(values), rendered(name))

    @unittest.skipUnless(shutil.which('go'), 'go, whose template engine is that of Helm, is not installed')
    def test_the_chart_makes_config_maps_of_the_dashboards(self):
        maps = [thing for key, thing in rendered_by_go({'dashboards': {'enabled': True}}).items() if key[0] == 'ConfigMap']
        self.assertEqual(dashboards_in(maps, 'nccl-exporter'), dashboard_files())

    def rules_with_links(self, render):
        generated = subprocess.run([DEPLOY / 'prometheus/generate-rules', '--runbooks', 'https://runbooks.example/nccl',
                                    '--dashboards', 'https://grafana.example'], check=True, capture_output=True, text=True).stdout
        made = render({'prometheusRule': {'enabled': True, 'runbooks': 'https://runbooks.example/nccl/', 'dashboards': 'https://grafana.example/'}})
        self.assertEqual(made['PrometheusRule', 'nccl-exporter']['spec'], yaml.safe_load(generated))
        made = render({'prometheusRule': {'enabled': True}})
        self.assertEqual(made['PrometheusRule', 'nccl-exporter']['spec'], rules())

    @unittest.skipUnless(shutil.which('go'), 'go, whose template engine is that of Helm, is not installed')
    def test_the_chart_has_the_links_that_its_values_name(self):
        self.rules_with_links(rendered_by_go)

    @unittest.skipUnless(shutil.which('helm'), 'helm is not installed')
    def test_helm_makes_the_links_that_the_values_name(self):
        self.rules_with_links(rendered_by_helm)

    @unittest.skipUnless(shutil.which('helm'), 'helm is not installed')
    def test_helm_renders_what_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([HELM / 'render', folder], check=True)
            subprocess.run(['helm', 'lint', '--strict', HELM / 'nccl-exporter'], check=True)
            for name in 'default', 'all':
                self.assertEqual(rendered(name, pathlib.Path(folder)), rendered(name))

    @unittest.skipUnless(shutil.which('helm'), 'helm is not installed')
    def test_helm_makes_config_maps_of_the_dashboards(self):
        """Apart from the rest: what is rendered would be a second copy of them."""
        output = subprocess.run(['helm', 'template', 'nccl-exporter', HELM / 'nccl-exporter', '--namespace', 'nccl-exporter', '--set', 'dashboards.enabled=true',
                                 '--show-only', 'templates/dashboards.yaml'], check=True, capture_output=True, text=True).stdout
        self.assertEqual(dashboards_in(yaml.safe_load_all(output), 'nccl-exporter'), dashboard_files())


class Dashboards(unittest.TestCase):
    maxDiff = None

    def test_the_chart_has_all_of_them(self):
        files = {path.name: path.read_text() for path in (HELM / 'nccl-exporter/dashboards').iterdir()}
        self.assertEqual(files, dashboard_files())
        self.assertIn('.Files.Glob "dashboards/*.json"', (HELM / 'nccl-exporter/templates/dashboards.yaml').read_text())

    @unittest.skipUnless(kustomize(), 'neither kustomize nor kubectl is installed')
    def test_kustomize_makes_config_maps_of_the_dashboards(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(GRAFANA, folder, dirs_exist_ok=True)
            output = subprocess.run([*kustomize(), folder], check=True, capture_output=True, text=True).stdout
        self.assertEqual(dashboards_in(yaml.safe_load_all(output), 'monitoring'), dashboard_files())


if __name__ == '__main__':
    report.main()
