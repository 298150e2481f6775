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
import chart
import kubernetes_model
import report
from bases import BASES, CRDS, HAS_CEL, KUBERNETES, SCHEMAS, base, kustomize

HELM, GRAFANA = DEPLOY / 'helm', DEPLOY / 'grafana'
NEWER_KINDS = ['MutatingAdmissionPolicy', 'MutatingAdmissionPolicyBinding']  # 1.36
OPERATOR_KINDS = ['ServiceMonitor', 'PodMonitor', 'PrometheusRule']
CRD_KINDS = ['SecurityContextConstraints']  # of OpenShift
CHART_LABELS = ['app.kubernetes.io/instance', 'app.kubernetes.io/managed-by', 'helm.sh/chart']
VALUES = sorted(chart.values_files())
HAS_GO, HAS_HELM = shutil.which('go'), shutil.which('helm')
NO_GO = 'go, whose template engine is that of Helm, is not installed'


def all_objects():
    return [thing for name in BASES for thing in base(name)] + [thing for name in VALUES for thing in rendered(name).values()]


def schema_faults(things):
    output = subprocess.run(['node', DEPLOY / 'tests/validate.mjs', SCHEMAS], input=json.dumps(things), check=True, capture_output=True, text=True).stdout
    return json.loads(output)


def rules():
    return yaml.safe_load((DEPLOY / 'prometheus/nccl-exporter.rules.yml').read_text())


def rendered(name):
    """The kept objects of the chart, with the contents that are kept elsewhere."""
    things = chart.kept(name)
    for (kind, _), thing in things.items():
        if kind == 'PrometheusRule':
            thing['spec'] = rules()
        if kind == 'MutatingAdmissionPolicy':
            thing['spec'] = base('inject')[0]['spec']
        if kind == 'ConfigMap':
            thing['data'] = {thing['metadata']['name'].removesuffix('-dashboard') + '.json': '{}'}
    return things


def closed(schema):
    """A schema of a CRD that takes no field which it does not list, and null where it says nullable."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: closed(part) for key, part in schema.items()}
    if isinstance(made.get('properties'), dict) and not made.get('x-kubernetes-preserve-unknown-fields'):
        made.setdefault('additionalProperties', False)
    if made.get('nullable') is True:
        made['type'] = [made['type'], 'null']
    return made


def crd_faults(things):
    definitions = [yaml.load(path.read_text(), getattr(yaml, 'CSafeLoader', yaml.SafeLoader)) for path in CRDS.glob('*.yaml')]
    schemas = {(f"{crd['spec']['group']}/{version['name']}", crd['spec']['names']['kind']): version['schema']['openAPIV3Schema']
               for crd in definitions for version in crd['spec']['versions']}
    faults = []
    for thing in things:
        validator = jsonschema.Draft7Validator(closed(schemas[thing['apiVersion'], thing['kind']]))
        metadata = {'name': 'x'}  # of Kubernetes itself
        faults += [f"{thing['kind']}: {list(fault.path)}: {fault.message[:200]}" for fault in validator.iter_errors({**thing, 'metadata': metadata})]
    return faults


def leaves(values, path=()):
    """The paths of the values of a chart: those of lists, of empty maps and of everything that is no map."""
    if not isinstance(values, dict) or not values:
        return {path}
    return {leaf for key, value in values.items() for leaf in leaves(value, (*path, key))}


def at(values, path):
    for key in path:
        if not isinstance(values, dict) or key not in values:
            return None
        values = values[key]
    return values


def without_chart_labels(thing):
    """`thing` without what only the chart sets, at any depth."""
    if isinstance(thing, list):
        return [without_chart_labels(item) for item in thing]
    if not isinstance(thing, dict):
        return thing
    left_out = [*CHART_LABELS, *(['imagePullPolicy'] if 'image' in thing else [])]
    made = {key: without_chart_labels(item) for key, item in thing.items() if key not in left_out}
    return made


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


def pods(things):
    return [thing['spec']['template']['spec'] for thing in things if thing['kind'] in ('DaemonSet', 'Job')]


class Manifests(unittest.TestCase):
    maxDiff = None

    def test_kubernetes_knows_every_object_and_field(self):
        checked = [thing for thing in all_objects() if thing['kind'] not in NEWER_KINDS + OPERATOR_KINDS + CRD_KINDS]
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
        things = [thing for thing in all_objects() if thing['kind'] not in CRD_KINDS]
        self.assertTrue({*NEWER_KINDS, *OPERATOR_KINDS} <= {thing['kind'] for thing in things})
        self.assertEqual(schema_faults(things), [])
        wrong = copy.deepcopy([next(thing for thing in things if thing['kind'] == kind) for kind in ('DaemonSet', *NEWER_KINDS[:1], *OPERATOR_KINDS)])
        for thing in wrong:
            thing['spec'] = {**thing['spec'], 'selector': 1, 'groups': 1, 'failurePolicy': 'Perhaps'}
        self.assertEqual(len(schema_faults(wrong)), len(wrong))

    @unittest.skipUnless(CRDS.is_dir(), 'no CRDs: tools/fetch-kubernetes-schemas says which')
    def test_openshift_takes_its_objects(self):
        things = [thing for thing in all_objects() if thing['kind'] in CRD_KINDS]
        self.assertEqual({thing['kind'] for thing in things}, set(CRD_KINDS))
        self.assertEqual(crd_faults(things), [])
        self.assertNotEqual(crd_faults([{**things[0], 'users': 'x'}]), [])

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
            self.assertEqual(chart.by_name(yaml.safe_load_all(output)), chart.by_name(base(name)), name)

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
                is_root = context.get('runAsUser') == 0
                self.assertNotEqual(context.get('runAsNonRoot', False), is_root)
                self.assertTrue(context['readOnlyRootFilesystem'])
                self.assertEqual((context.get('privileged', False), context.get('allowPrivilegeEscalation'), context.get('capabilities')),
                                 (True, None, None) if is_root else (False, False, {'drop': ['ALL']}))

    def test_the_nodes_directory_becomes_a_file_system_by_the_init_container_alone(self):
        """Kubernetes refuses Bidirectional without `privileged`, and `privileged` with allowPrivilegeEscalation: false."""
        for name in ('default', 'all', 'host-network'):
            [pod] = pods(rendered(name).values())
            [place], [daemon, *beside] = pod['initContainers'], pod['containers']
            propagation = [{mount['name']: mount.get('mountPropagation') for mount in container['volumeMounts']}.get('segments') for container in (place, daemon)]
            context = place['securityContext']
            if name == 'host-network':  # segmentFileSystem: false
                self.assertEqual(propagation, [None, None])
                self.assertEqual((context.get('privileged'), context['allowPrivilegeEscalation'], context['capabilities']),
                                 (None, False, {'drop': ['ALL'], 'add': ['CHOWN', 'FOWNER']}))
            else:
                self.assertEqual(propagation, ['Bidirectional', 'HostToContainer'])
                self.assertEqual((context['privileged'], context.get('allowPrivilegeEscalation')), (True, None))
            self.assertEqual([container['name'] for container in (daemon, *beside) if container['securityContext'].get('privileged')], [])

    def test_the_daemons_know_the_name_of_their_node(self):
        """Their page shows it; without it they show the pod's."""
        for pod in pods([thing for name in ('node', 'sidecar') for thing in base(name)]):
            daemon = next(c for c in pod['initContainers'] + pod['containers'] if c['name'] == 'nccl-exporter')
            self.assertEqual(daemon.get('env'), [{'name': 'NODE_NAME', 'valueFrom': {'fieldRef': {'fieldPath': 'spec.nodeName'}}}])

    def test_probes_need_neither_tls_nor_a_password(self):
        """They go to the daemon's --web.health-address, with any values; //exporter:main_test asks it with TLS, passwords and both."""
        for thing in [*base('node'), *(thing for name in VALUES for thing in rendered(name).values())]:
            if thing['kind'] != 'DaemonSet':
                continue
            daemon = thing['spec']['template']['spec']['containers'][0]
            ports = {port['name']: port['containerPort'] for port in daemon['ports']}
            address = next(flag for flag in daemon['args'] if flag.startswith('--web.health-address=')).partition('=')[2]
            host, _, port = address.rpartition(':')
            self.assertEqual(int(port), ports['health'])
            for probe, path in ('readinessProbe', '/-/ready'), ('livenessProbe', '/-/healthy'):
                self.assertEqual(daemon[probe]['httpGet'], {'path': path, 'port': 'health'} | ({'host': host} if host else {}))

    def test_the_daemons_have_room_for_all_that_they_may_hold(self):
        """Some 240 MiB, as SECURITY.md has it."""
        for pod in pods([thing for name in ('node', 'sidecar') for thing in base(name)]):
            daemon = next(c for c in pod['initContainers'] + pod['containers'] if c['name'] == 'nccl-exporter')
            self.assertEqual(daemon['resources']['limits'], {'memory': '256Mi'})

    def test_every_container_of_ours_has_requests_and_limits(self):
        """A namespace with a ResourceQuota refuses pods of which one has none. An init container's count only where they are more than the others'."""
        things = [thing for name in ('node', 'sidecar') for thing in base(name)] + [thing for name in VALUES for thing in rendered(name).values()]
        for pod in pods(things):
            ours = [c for c in pod['initContainers'] + pod['containers'] if 'nccl-exporter' in c['image']]
            self.assertGreaterEqual(len(ours), 2)
            self.assertEqual([c.get('resources', {}).keys() for c in ours], [{'requests', 'limits'}] * len(ours))
            self.assertEqual([c['resources'] for c in ours], [ours[0]['resources']] * len(ours))

    def test_monitors_leave_the_jobs_labels_alone(self):
        monitors = [thing for thing in base('monitoring') if thing['kind'].endswith('Monitor')]
        endpoints = [endpoint for thing in monitors for endpoint in thing['spec'].get('endpoints', thing['spec'].get('podMetricsEndpoints'))]
        self.assertEqual([endpoint['honorLabels'] for endpoint in endpoints], [True] * 4)

    def test_monitors_scrape_alert_series_more_often_than_detail(self):
        for thing in [thing for thing in base('monitoring') if thing['kind'].endswith('Monitor')]:
            endpoints = thing['spec'].get('endpoints', thing['spec'].get('podMetricsEndpoints'))
            self.assertEqual([(endpoint['params'], endpoint['interval']) for endpoint in endpoints],
                             [({'collect[]': ['alerts']}, '15s'), ({'collect[]': ['detail']}, '60s')])
            parts = [[rule.get('replacement') for rule in endpoint.get('relabelings', []) if rule['targetLabel'] == 'part'] for endpoint in endpoints]
            self.assertEqual(parts, [[], ['detail']], 'the two have `up` series of their own')


class Chart(unittest.TestCase):
    maxDiff = None

    def test_default_values_render_to_the_node_base(self):
        expected = {key: thing for key, thing in chart.by_name(base('node')).items() if key[0] != 'Namespace'}
        self.assertEqual({key: without_chart_labels(thing) for key, thing in rendered('default').items()},
                         {key: without_chart_labels(thing) for key, thing in expected.items()})

    def test_all_values_render_to_all_kinds(self):
        expected = {thing['kind'] for name in ('node', 'monitoring', 'inject') for thing in base(name)} - {'Namespace'}
        self.assertEqual({kind for kind, _ in rendered('all')}, expected | {'ConfigMap', 'SecurityContextConstraints'})

    def test_extensions_and_otlp_have_no_rights_no_segments_and_restart_alone(self):
        [pod] = pods(rendered('all').values())
        daemon, *beside = pod['containers']
        self.assertEqual([container['name'] for container in beside], ['extension', 'otlp'])
        for container in beside:
            self.assertEqual(container['securityContext'], daemon['securityContext'])
            self.assertFalse({'segments', 'plugin', 'web-config'} & {mount['name'] for mount in container['volumeMounts']})
            self.assertNotIn('ports', container)
        [shared] = {mount['name'] for mount in beside[0]['volumeMounts']} & {volume['name'] for volume in pod['volumes'] if 'emptyDir' in volume}
        self.assertTrue(next(mount for mount in daemon['volumeMounts'] if mount['name'] == shared)['readOnly'])
        for flag in 'labels.dir', 'socket':
            places = [arg.partition('=')[2] for container in (daemon, beside[0]) for arg in container['args'] if arg.partition('=')[0].endswith(flag)]
            self.assertEqual((len(places), len(set(places))), (2, 1), places)

    def test_without_an_interval_of_detail_one_scrape_takes_all(self):
        alerts, of_pods, of_nodes = ('30s', ['alerts']), ('60s', ['detail']), ('2m', ['detail'])
        for name, expected in ('all', [[alerts, of_pods], [alerts, of_nodes]]), ('host-network', [[('15s', None)]] * 2):
            specs = [rendered(name)[key]['spec'] for key in sorted(rendered(name)) if key[0].endswith('Monitor')]
            self.assertEqual([[(endpoint['interval'], endpoint.get('params', {}).get('collect[]')) for endpoint in
                               spec.get('endpoints', spec.get('podMetricsEndpoints'))] for spec in specs], expected)

    def monitors_by_default(self, render):
        made = render({'serviceMonitor': {'enabled': True}, 'podMonitor': {'enabled': True}})
        for key, thing in chart.by_name(base('monitoring')).items():
            if key[0].endswith('Monitor'):
                self.assertEqual(without_chart_labels(made[key]), without_chart_labels(thing))

    def injection_by_values(self, render):
        made = render({'fullnameOverride': 'gpus', 'segmentDirectory': '/var/run/nccl', 'pluginDirectory': '/opt/nccl', 'inject': {'enabled': True}})
        for (kind, name), thing in chart.by_name(base('inject')).items():
            own = copy.deepcopy(made[kind, 'gpus-inject'])
            own['metadata'].pop('labels')
            text = json.dumps(own).replace('gpus-inject', name)
            for directory, of_base in ('/var/run/nccl', '/run/nccl-exporter'), ('/opt/nccl', '/opt/nccl-exporter'):
                text = text.replace(f'hostPath{{path: \\"{directory}\\"', f'hostPath{{path: \\"{of_base}\\"')
            self.assertEqual(json.loads(text), thing)
        policy = render({'inject': {'enabled': True, 'durations': True}})['MutatingAdmissionPolicy', 'nccl-exporter-inject']
        self.assertEqual(re.findall(r'env{name: "(\w+)", value: "0"}', policy['spec']['mutations'][-1]['jsonPatch']['expression']),
                         ['NCCL_GRAPH_REGISTER', 'NCCL_LOCAL_REGISTER', 'NCCL_ALLGATHERV_ENABLE'])

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_monitors_and_injection_are_those_of_the_bases(self):
        self.monitors_by_default(chart.rendered_by_go)
        self.injection_by_values(chart.rendered_by_go)

    def test_every_value_is_used_by_a_values_file(self):
        defaults = chart.default_values()
        unused = {leaf for leaf in leaves(defaults)
                  if all(at(chart.merged(defaults, values), leaf) == at(defaults, leaf) for values in chart.values_files().values())}
        self.assertEqual(unused, set())
        for name, values in chart.values_files().items():
            jsonschema.validate(chart.merged(defaults, values), json.loads((chart.CHART / 'values.schema.json').read_text()))
            self.assertEqual({path.name for path in chart.TESTDATA.glob(f'{name}.*')}, {f'{name}.values.yaml', f'{name}.rendered.yaml'})

    def test_names_and_selectors_belong_to_the_release(self):
        """Two releases in a namespace do not select each other's pods."""
        for name in VALUES:
            things = rendered(name)
            daemonset = next(thing for thing in things.values() if thing['kind'] == 'DaemonSet')
            labels = daemonset['spec']['template']['metadata']['labels']
            selectors = [thing['spec'].get('podSelector', thing['spec'].get('selector')) for thing in things.values()
                         if thing['kind'] in ('DaemonSet', 'Service', 'NetworkPolicy', 'ServiceMonitor')]
            for selector in selectors:
                selector = selector.get('matchLabels', selector)
                self.assertEqual(selector['app.kubernetes.io/instance'], 'nccl-exporter')
                self.assertEqual(selector.items() - labels.items(), set(), name)

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_the_notes_say_who_may_scrape(self):
        for name, more, expected in (('default', {}, 'lets in the namespace monitoring, and nobody else'),
                                     ('all', {}, '"ipBlock":{"cidr":"10.20.0.0/16"}'),
                                     ('default', {'networkPolicy': {'from': [{'ipBlock': {'cidr': '10.20.0.0/16'}}]}},
                                      'lets in the namespace monitoring and [{"ipBlock":{"cidr":"10.20.0.0/16"}}], and nobody else'),
                                     ('default', {'networkPolicy': {'prometheusNamespace': ''}}, 'lets in nobody'),
                                     ('default', {'networkPolicy': {'enabled': False}}, 'every pod of the cluster reaches port 9828'),
                                     ('host-network', {}, "the node's firewall decides about port 19828"),
                                     ('all', {}, 'Secret nccl-exporter-web: serviceMonitor.tlsConfig and'),
                                     ('default', {'webConfigSecret': 'web'}, "Secret web: Prometheus' own configuration must fit it"),
                                     ('all', {}, 'kubectl label namespace NAMESPACE nccl-exporter/inject=enabled'),
                                     ('default', {'inject': {'enabled': True}}, 'With inject.durations=true the policy sets'),
                                     ('default', {}, 'mounts a tmpfs at /run/nccl-exporter of the node'),
                                     ('host-network', {}, 'Any user of a node can fill the file system of /run/nccl-exporter'),
                                     ('default', {}, 'With inject.enabled=true the pods of chosen namespaces')):
            self.assertIn(expected, chart.notes_by_go(chart.merged(chart.values_files()[name], more)))

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_a_policy_lets_in_whom_the_values_name_and_without_peers_nobody(self):
        """An empty `from` would let in everybody."""
        of = lambda **values: chart.rendered_by_go({'networkPolicy': values})['NetworkPolicy', 'nccl-exporter']['spec']['ingress']
        self.assertEqual(of(prometheusNamespace=''), [])
        block = {'ipBlock': {'cidr': '10.20.0.0/16'}}
        self.assertEqual(of(**{'from': [block]})[0]['from'], [{'namespaceSelector': {'matchLabels': {'kubernetes.io/metadata.name': 'monitoring'}}}, block])

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_without_an_account_of_its_own_and_without_a_name_it_is_the_default_one(self):
        pod = chart.rendered_by_go({'serviceAccount': {'create': False}})['DaemonSet', 'nccl-exporter']['spec']['template']['spec']
        self.assertEqual(pod['serviceAccountName'], 'default')

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_openshift_admits_what_of_the_nodes_the_values_choose(self):
        """Regression: with hostPID the constraints refused the chart's own pods."""
        allowed = ['allowHostNetwork', 'allowHostPorts', 'allowHostPID', 'allowPrivilegedContainer', 'allowPrivilegeEscalation']
        for values, expected in (({}, [False, False, False, True, True]), ({'hostNetwork': True}, [True, True, False, True, True]),
                                 ({'hostPID': True}, [False, False, True, True, True]), ({'segmentFileSystem': False}, [False] * 5)):
            made = chart.rendered_by_go({**values, 'openshift': {'securityContextConstraints': True}})
            self.assertEqual([made['SecurityContextConstraints', 'nccl-exporter'][key] for key in allowed], expected)

    def test_the_chart_has_the_projects_rules(self):
        generated = subprocess.run([DEPLOY / 'prometheus/generate-rules', '--for-chart'], check=True, capture_output=True, text=True).stdout
        self.assertEqual((HELM / 'nccl-exporter/rules.yml').read_text(), generated, 'run generate-rules --for-chart')
        template = (HELM / 'nccl-exporter/templates/prometheusrule.yaml').read_text()
        self.assertTrue(template.endswith('{{ include "nccl-exporter.rules" . | indent 2 }}\n{{- end }}\n'))

    def test_values_fit_the_schema_and_wrong_ones_do_not(self):
        schema = json.loads((HELM / 'nccl-exporter/values.schema.json').read_text())
        values = yaml.safe_load((HELM / 'nccl-exporter/values.yaml').read_text())
        self.assertEqual(values.keys(), schema['properties'].keys() - {'global'})
        jsonschema.validate(values, schema)
        for wrong in ({'retention': '5 minutes'}, {'segmentDirectory': 'run'}, {'imag': {}}, {'extraArgs': ['x']},
                      {'serviceMonitor': {'enabled': True}}, {'port': 80}, {'hostNetwork': 'yes'}, {'segmentFileSystem': 'yes'}, {'fullnameOverride': 'A B'},
                      {'serviceMonitor': {**values['serviceMonitor'], 'tls': {}}}, {'podMonitor': {**values['podMonitor'], 'tlsConfig': {}}},
                      {'image': {**values['image'], 'digest': 'sha256:1'}}, {'inject': {'enabled': 'yes'}},
                      {'updateStrategy': {'type': 'Recreate'}}, {'affinity': {'nodeSelector': {}}}, {'extraEnv': [{'value': '1'}]},
                      {'extensions': {'enabled': True, 'args': []}}, {'otlp': {**values['otlp'], 'queueSize': '64'}},
                      {'otlp': {**values['otlp'], 'args': ['https://otlp.example']}}, {'otlp': {**values['otlp'], 'egress': [{'from': []}]}},
                      {'networkPolicy': {**values['networkPolicy'], 'from': [{}]}}, {'openshift': {'scc': True}}, {'seLinuxOptions': {'typ': 'spc_t'}},
                      {'prometheusRule': {**values['prometheusRule'], 'dashboards': 'grafana'}}, {'image': {'repository': 'x', 'tag': '1', 'pullPolicy': 'Sometimes'}}):
            with self.assertRaises(jsonschema.ValidationError, msg=wrong):
                jsonschema.validate({**values, **wrong}, schema)

    def test_values_that_have_ended_are_refused_by_one_line_that_names_them(self):
        schema = json.loads((HELM / 'nccl-exporter/values.schema.json').read_text())
        for name, ended in ('inject', {'engine': 'Kyverno'}), ('inject', {'engine': 'MutatingAdmissionPolicy'}):
            [fault] = jsonschema.Draft7Validator(schema).iter_errors(chart.merged(chart.default_values(), {name: ended}))
            self.assertEqual((list(fault.path), fault.message), ([name], "Additional properties are not allowed ('engine' was unexpected)"))

    def renders_what_is_kept(self, render):
        for name, values in chart.values_files().items():
            self.assertEqual(chart.without_what_is_kept_elsewhere(render(values)), chart.kept(name), name)

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_the_templates_render_to_what_is_kept(self):
        self.renders_what_is_kept(chart.rendered_by_go)

    @unittest.skipUnless(HAS_GO and HAS_CEL, 'no go, or no CEL: tools/fetch-kubernetes-schemas fetches that')
    def test_the_injection_sets_what_durations_need_where_it_is_asked_for(self):
        import admission_model
        pod = {'metadata': {'name': 'x'}, 'spec': {'containers': [
            {'name': 'c', 'resources': {'limits': {'nvidia.com/gpu': '8'}}, 'env': [{'name': 'NCCL_ALLGATHERV_ENABLE', 'value': '1'}]}]}}
        for durations in False, True:
            inject = {'enabled': True, 'durations': durations}
            made = admission_model.changed(chart.rendered_by_go({'inject': inject})['MutatingAdmissionPolicy', 'nccl-exporter-inject'], [pod])
            values = lambda name: [variable['value'] for variable in made[0]['spec']['containers'][0]['env'] if variable['name'] == name]
            self.assertEqual(values('NCCL_ALLGATHERV_ENABLE'), ['0', '1'] if durations else ['1'], 'the last one is in force')
            for name in 'NCCL_LOCAL_REGISTER', 'NCCL_GRAPH_REGISTER':
                self.assertEqual(values(name), ['0'] if durations else [])
            self.assertEqual('inject.durations=true' in chart.notes_by_go({'inject': inject}), not durations)

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_the_chart_makes_config_maps_of_the_dashboards(self):
        maps = [thing for key, thing in chart.rendered_by_go({'dashboards': {'enabled': True}}).items() if key[0] == 'ConfigMap']
        self.assertEqual(dashboards_in(maps, 'nccl-exporter'), dashboard_files())

    RULE_OPTIONS = [  # values of prometheusRule, and the options of generate-rules that make the same
        ({}, []),
        ({'runbooks': 'https://runbooks.example/nccl/', 'dashboards': 'https://grafana.example/'},
         ['--runbooks', 'https://runbooks.example/nccl', '--dashboards', 'https://grafana.example']),
        ({'hangThreshold': '5m', 'criticalThreshold': '1h', 'stallThreshold': '20m', 'stragglerThreshold': 0.05, 'bandwidthRatio': 0.5, 'networkRatio': 2.5},
         ['--hang-threshold', '5m', '--critical-threshold', '1h', '--stall-threshold', '20m', '--straggler-threshold', '0.05', '--bandwidth-ratio', '0.5',
          '--network-ratio', '2.5']),
        ({'hangThreshold': '45s', 'criticalThreshold': '90s', 'stallThreshold': '30s', 'jobLabels': ['team', 'queue'], 'dashboards': 'https://grafana.example'},
         ['--hang-threshold', '45s', '--critical-threshold', '90s', '--stall-threshold', '30s', '--dashboards', 'https://grafana.example']),
    ]

    def rules_by_values(self, render):
        job_labels = yaml.safe_load(subprocess.run([DEPLOY / 'prometheus/generate-rules'], check=True, capture_output=True, text=True).stdout)
        [labels] = {re.search(r'by \((.*), uid\)', rule['expr'])[1] for group in job_labels['groups'] for rule in group['rules']
                    if rule.get('record') == 'job:nccl_hang:waiting'}
        for values, arguments in self.RULE_OPTIONS:
            more = ['--job-labels', ','.join([labels.replace(' ', ''), *values['jobLabels']])] if 'jobLabels' in values else []
            generated = subprocess.run([DEPLOY / 'prometheus/generate-rules', *arguments, *more], check=True, capture_output=True, text=True).stdout
            made = render({'prometheusRule': {'enabled': True, **values}})
            self.assertEqual(made['PrometheusRule', 'nccl-exporter']['spec'], yaml.safe_load(generated))

    def thresholds_by_values(self, render):
        """The daemons judge by what the rules are made of."""
        for values, arguments in self.RULE_OPTIONS:
            with tempfile.TemporaryDirectory() as directory:
                options = [argument for argument in arguments if 'https' not in argument and argument not in ('--runbooks', '--dashboards')]
                subprocess.run([DEPLOY / 'prometheus/generate-rules', *options, '--output', directory], check=True)
                wanted = json.loads((pathlib.Path(directory) / 'thresholds.json').read_text())
            made = render({'prometheusRule': {'enabled': False, **values}})
            shipped = json.loads((DEPLOY / 'prometheus/thresholds.json').read_text())
            config_map = made.get(('ConfigMap', 'nccl-exporter-thresholds'))
            chosen = json.loads(config_map['data']['thresholds.json']) if config_map else {}
            self.assertEqual(shipped | chosen, wanted)
            pod = made['DaemonSet', 'nccl-exporter']['spec']['template']
            [container] = pod['spec']['containers']
            self.assertEqual('--findings.config=/etc/nccl-exporter-thresholds/thresholds.json' in container['args'], wanted != shipped)
            self.assertEqual('nccl-exporter/thresholds' in pod['metadata'].get('annotations', {}), wanted != shipped)

    def test_the_chart_has_the_shipped_thresholds(self):
        self.assertEqual((HELM / 'nccl-exporter/thresholds.json').read_bytes(), (DEPLOY / 'prometheus/thresholds.json').read_bytes())

    def alerts_by_values(self, render):
        made = render({'prometheusRule': {'enabled': True, 'alertLabels': {'team': 'ml', 'tier': '1'},
                                          'severities': {'NCCLStragglerRank': 'info', 'NCCLHangCulprit': 'warning'}}})
        of = lambda thing: [(rule['alert'], rule['labels']) for group in thing['groups'] for rule in group['rules'] if 'alert' in rule]
        changed = {'NCCLStragglerRank': 'info', 'NCCLHangCulprit': 'warning'}
        self.assertEqual(of(made['PrometheusRule', 'nccl-exporter']['spec']),
                         [(name, {'team': 'ml', 'tier': '1', 'severity': changed.get(name, labels['severity'])}) for name, labels in of(rules())])

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_the_charts_values_make_the_rules_that_the_generators_options_make(self):
        self.rules_by_values(chart.rendered_by_go)
        self.thresholds_by_values(chart.rendered_by_go)

    @unittest.skipUnless(HAS_GO, NO_GO)
    def test_the_charts_values_choose_labels_and_severities_of_alerts(self):
        self.alerts_by_values(chart.rendered_by_go)

    @unittest.skipUnless(HAS_HELM, 'helm is not installed')
    def test_helm_makes_the_same_rules_of_the_values(self):
        self.rules_by_values(chart.rendered_by_helm)
        self.thresholds_by_values(chart.rendered_by_helm)
        self.alerts_by_values(chart.rendered_by_helm)

    @unittest.skipUnless(HAS_HELM, 'helm is not installed')
    def test_helm_renders_what_is_kept(self):
        subprocess.run(['helm', 'lint', '--strict', HELM / 'nccl-exporter'], check=True)
        self.renders_what_is_kept(chart.rendered_by_helm)
        self.monitors_by_default(chart.rendered_by_helm)
        self.injection_by_values(chart.rendered_by_helm)

    @unittest.skipUnless(HAS_HELM, 'helm is not installed')
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
