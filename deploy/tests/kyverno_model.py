# SPDX-License-Identifier: Apache-2.0
"""What Kyverno makes of a pod by the policy of this project: those of its rules, conditions and patches that the policy uses."""
import copy
import fnmatch
import re

import jmespath
import yaml

import json_patch


ESCAPED_REFERENCE = re.compile(r'\\(\$\(.[^ ]*\))')  # as Kyverno's own expression; without the backslash it looks for the path in the policy
REFERENCE = re.compile(r'(?:^|[^\\])\$\(.[^ ]*\)')


def unescaped(text):
    assert not REFERENCE.search(text), 'a reference'
    return ESCAPED_REFERENCE.sub(r'\1', text)


def evaluated(text, data):
    """The value of a text of the policy, all of which is a variable."""
    return jmespath.search(re.fullmatch(r'{{(.*)}}', text)[1].strip(), data)


def holds(condition, data):
    key, value = evaluated(condition['key'], data), condition['value']
    if condition['operator'] == 'AnyIn':
        return any(fnmatch.fnmatchcase(item, pattern) for item in key for pattern in value)
    return {'Equals': key == value, 'GreaterThan': isinstance(key, int) and key > value}[condition['operator']]


def all_hold(conditions, data):
    return all(holds(condition, data) for condition in conditions.get('all', [])) and \
        (not conditions.get('any') or any(holds(condition, data) for condition in conditions['any']))


def is_selected(resources, pod, namespace_labels):
    metadata = pod['metadata']
    pairs = [(resources.get('namespaceSelector', {}).get('matchLabels', {}), namespace_labels),
             (resources.get('selector', {}).get('matchLabels', {}), metadata.get('labels', {})),
             (resources.get('annotations', {}), metadata.get('annotations', {}))]
    return all(wanted.items() <= there.items() for wanted, there in pairs)


def patch(pod, text):
    json_patch.apply(pod, yaml.safe_load(unescaped(text)), makes_lists=True)


def changed(policy, pod, namespace_labels):
    pod = copy.deepcopy(pod)
    for rule in policy['spec']['rules']:
        def is_one_of(block):
            return any(is_selected(choice['resources'], pod, namespace_labels) for choice in rule.get(block, {}).get('any', []))
        data = {'request': {'object': copy.deepcopy(pod)}}
        for variable in rule.get('context', []):
            data[variable['name']] = jmespath.search(variable['variable']['jmesPath'], data) or variable['variable']['default']
        if not is_one_of('match') or is_one_of('exclude') or not all_hold(rule.get('preconditions', {}), data):
            continue
        if 'patchesJson6902' in rule['mutate']:
            patch(pod, rule['mutate']['patchesJson6902'])
        for each in rule['mutate'].get('foreach', []):
            for index, element in enumerate(jmespath.search(each['list'], data)):
                scope = data | {'element': element, 'elementIndex': index}
                if all_hold(each.get('preconditions', {}), scope):
                    text = re.sub(r'{{ ([\w.]+) }}', lambda variable: str(jmespath.search(variable[1], scope)), each['patchesJson6902'])
                    patch(pod, text)
    return pod
