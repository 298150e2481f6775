# SPDX-License-Identifier: Apache-2.0
"""The bases of kustomize, and what reads them where it is installed."""
import os
import pathlib
import shutil

import yaml

KUBERNETES = pathlib.Path(os.path.abspath(__file__)).parent.parent / 'kubernetes'
BASES = ['node', 'monitoring', 'sidecar', 'inject']
CACHE = pathlib.Path('/var/cache/nccl-exporter/kubernetes')  # tools/fetch-kubernetes-schemas says how it is filled
SCHEMAS, CRDS = CACHE / 'node_modules', CACHE / 'crds'
HAS_CEL = shutil.which('node') and (SCHEMAS / '@bufbuild/cel').is_dir()


def objects(path):
    return list(yaml.safe_load_all(path.read_text()))


def base(name):
    listed = yaml.safe_load((KUBERNETES / name / 'kustomization.yaml').read_text())['resources']
    return [thing for file in listed for thing in objects(KUBERNETES / name / file)]


def kustomize():
    if shutil.which('kustomize'):
        return ['kustomize', 'build']
    return ['kubectl', 'kustomize'] if shutil.which('kubectl') else None
