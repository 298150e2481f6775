# SPDX-License-Identifier: Apache-2.0
"""The chart as it is rendered with given values: by Helm, or by Go, whose template engine is that of Helm."""
import atexit
import functools
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml

DEPLOY = pathlib.Path(os.path.abspath(__file__)).parent.parent
CHART = DEPLOY / 'helm/nccl-exporter'
TESTDATA = DEPLOY / 'helm/testdata'
# Rules, dashboards and the policy that injects: not once more in the rendered texts.
KEPT_ELSEWHERE = {'PrometheusRule': 'spec', 'ConfigMap': 'data', 'MutatingAdmissionPolicy': 'spec'}


def values_files():
    return {path.name.removesuffix('.values.yaml'): yaml.safe_load(path.read_text()) for path in sorted(TESTDATA.glob('*.values.yaml'))}


def default_values():
    return yaml.safe_load((CHART / 'values.yaml').read_text())


def merged(values, own):
    """As Helm merges: maps by key, and a null removes."""
    both = {key: merged(value, own[key]) if isinstance(value, dict) and isinstance(own.get(key), dict) else own.get(key, value)
            for key, value in values.items()} | {key: value for key, value in own.items() if key not in values}
    return {key: value for key, value in both.items() if value is not None}


def by_name(things):
    return {(thing['kind'], thing['metadata']['name']): thing for thing in things}


@functools.cache
def renderer():
    """The program that render_chart.go is, built once."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder)
    environment = os.environ | {'GOCACHE': folder + '/cache', 'GO111MODULE': 'off', 'GOFLAGS': ''}
    subprocess.run(['go', 'build', '-o', folder + '/render', DEPLOY / 'tests/render_chart.go'], check=True, env=environment)
    return folder + '/render'


def output_of_go(values, template):
    chart = yaml.safe_load((CHART / 'Chart.yaml').read_text())
    given = {'Values': merged(default_values(), values), 'Chart': {'Name': chart['name'], 'Version': chart['version']},
             'Release': {'Name': 'nccl-exporter', 'Namespace': 'nccl-exporter', 'Service': 'Helm'}}
    return subprocess.run([renderer(), CHART, template], input=json.dumps(given), check=True, stdout=subprocess.PIPE, text=True).stdout


def rendered_by_go(values):
    return by_name(thing for thing in yaml.safe_load_all(output_of_go(values, '*.yaml')) if thing)


def notes_by_go(values):
    return output_of_go(values, 'NOTES.txt')


def rendered_by_helm(values):
    output = subprocess.run(['helm', 'template', 'nccl-exporter', CHART, '--namespace', 'nccl-exporter', '--values', '-'],
                            input=json.dumps(values), check=True, capture_output=True, text=True).stdout
    return by_name(thing for thing in yaml.safe_load_all(output) if thing)


def without_what_is_kept_elsewhere(things):
    return {key: {field: value for field, value in thing.items() if field != KEPT_ELSEWHERE.get(thing['kind'])} for key, thing in things.items()}


def kept(name):
    """The kept objects of the chart with the values of that name."""
    return by_name(yaml.safe_load_all((TESTDATA / f'{name}.rendered.yaml').read_text()))
