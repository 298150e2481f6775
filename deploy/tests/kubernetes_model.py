# SPDX-License-Identifier: Apache-2.0
"""Compares an object with the Kubernetes API as Debian's python3-kubernetes knows it: generated from the OpenAPI document of
release 1.22, so that a field must exist, have the right type, and be there where it is required."""
import re

from kubernetes import client

GROUPS = {'v1': 'V1', 'apps/v1': 'V1', 'batch/v1': 'V1', 'networking.k8s.io/v1': 'V1', 'rbac.authorization.k8s.io/v1': 'V1'}
# Fields that are younger than the model, with the release from which on Kubernetes has them.
YOUNGER = {('V1Container', 'restartPolicy'): '1.28', ('V1ResourceRequirements', 'claims'): '1.26',
           ('V1JobSpec', 'podFailurePolicy'): '1.31'}
PLAIN = {'str': str, 'int': int, 'bool': bool, 'object': object, 'float': (int, float), 'datetime': str}


def faults(value, type_name, where):
    if listed := re.fullmatch(r'list\[(.*)\]', type_name):
        if not isinstance(value, list):
            return [f'{where}: not a list']
        return [fault for i, item in enumerate(value) for fault in faults(item, listed[1], f'{where}[{i}]')]
    if mapped := re.fullmatch(r'dict\((\w+), (.*)\)', type_name):
        if not isinstance(value, dict):
            return [f'{where}: not a map']
        return [fault for key, item in value.items() for fault in faults(key, mapped[1], where) + faults(item, mapped[2], f'{where}.{key}')]
    if type_name in PLAIN:
        is_right = isinstance(value, PLAIN[type_name]) and (type_name != 'int' or not isinstance(value, bool))
        return [] if is_right or where.endswith(('port', 'targetPort', 'maxUnavailable')) else [f'{where}: not of type {type_name}']
    return faults_of_model(value, getattr(client, type_name), where)


def faults_of_model(value, model, where):
    if not isinstance(value, dict):
        return [f'{where}: not an object']
    known = {key: attribute for attribute, key in model.attribute_map.items()}
    found = [f'{where}: no field {key}' for key in value if key not in known and (model.__name__, key) not in YOUNGER]
    for key in value.keys() & known.keys():
        found += faults(value[key], model.openapi_types[known[key]], f'{where}.{key}')
    try:
        model(**{known[key]: item for key, item in value.items() if key in known})  # says what is required and missing
    except ValueError as missing:
        found.append(f'{where}: {missing}')
    return found


def faults_of(thing):
    """One line for each fault; none: it is an object of Kubernetes 1.22 or of what YOUNGER lists."""
    return faults_of_model(thing, getattr(client, GROUPS[thing['apiVersion']] + thing['kind']), thing['kind'])
