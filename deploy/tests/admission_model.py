# SPDX-License-Identifier: Apache-2.0
"""Pods as Kubernetes changes them by the MutatingAdmissionPolicy of this project. Needs node, and the files of tools/fetch-kubernetes-schemas."""
import copy
import json
import pathlib
import re
import subprocess

from bases import SCHEMAS


def without_types(expression):
    """JSONPatch{op: "add"} as the map {"op": "add"}: the evaluator knows no types of Kubernetes."""
    maps = re.sub(r'\b(?:JSONPatch|Object[\w.]*){', '{', expression)
    return re.sub(r'([{,]\s*)(\w+):(?= )', r'\1"\2":', maps)


def evaluated(expressions, bindings):
    evaluator = pathlib.Path(__file__).parent / 'evaluate_cel.mjs'
    output = subprocess.run(['node', evaluator, SCHEMAS], check=True, capture_output=True, text=True,
                            input=json.dumps([[without_types(expression) for expression in expressions], bindings])).stdout
    return json.loads(output)


def add(thing, patches):
    """Applies JSON patches that add: they insert into lists, and set fields."""
    for patch in patches:
        assert patch['op'] == 'add', patch
        *path, place = patch['path'].removeprefix('/').split('/')
        target = thing
        for step in path:
            target = target[int(step) if isinstance(target, list) else step]
        if isinstance(target, list):
            target.insert(len(target) if place == '-' else int(place), patch['value'])
        else:
            target[place] = patch['value']


def changed(policy, pods):
    spec, pods = policy['spec'], copy.deepcopy(pods)
    are_met = evaluated([condition['expression'] for condition in spec['matchConditions']], [{'object': pod} for pod in pods])
    matched = [pod for pod, conditions in zip(pods, are_met) if all(conditions)]
    for mutation in spec['mutations']:
        variables = [dict(zip([variable['name'] for variable in spec['variables']], values))
                     for values in evaluated([variable['expression'] for variable in spec['variables']], [{'object': pod} for pod in matched])]
        bindings = [{'object': pod, 'variables': own} for pod, own in zip(matched, variables)]
        for pod, [patch] in zip(matched, evaluated([mutation['jsonPatch']['expression']], bindings)):
            add(pod, patch)
    return pods
