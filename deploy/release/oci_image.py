# SPDX-License-Identifier: Apache-2.0
"""An image as an OCI layout: one layer per architecture, and one index of all of them."""
import datetime
import hashlib
import json

import archive

# Kubernetes checks that it is not 0; no user of the node has it.
USER = 65532
INDEX = 'application/vnd.oci.image.index.v1+json'
MANIFEST = 'application/vnd.oci.image.manifest.v1+json'
CONFIG = 'application/vnd.oci.image.config.v1+json'
LAYER = 'application/vnd.oci.image.layer.v1.tar+gzip'


def digest(data):
    return 'sha256:' + hashlib.sha256(data).hexdigest()


class Image:
    """Collects the blobs of a layout."""

    def __init__(self, version, commit, seconds):
        self.labels = {'org.opencontainers.image.title': 'nccl-exporter', 'org.opencontainers.image.version': version,
                       'org.opencontainers.image.revision': commit, 'org.opencontainers.image.licenses': 'Apache-2.0'}
        self.version, self.seconds = version, seconds
        self.created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
        self.blobs, self.manifests = {}, []

    def _descriptor(self, kind, data):
        self.blobs[digest(data)] = data
        return {'mediaType': kind, 'digest': digest(data), 'size': len(data)}

    def _json(self, kind, value):
        return self._descriptor(kind, json.dumps(value, separators=(',', ':'), sort_keys=True).encode())

    def add(self, architecture, root):
        owners = {'run/nccl-exporter': USER}
        layer = archive.tar(root, '', self.seconds, owners)
        config = self._json(CONFIG, {
            'architecture': architecture.debian, 'os': 'linux', 'created': self.created,
            'config': {'User': f'{USER}:{USER}', 'Entrypoint': ['/usr/bin/nccl-exporter'], 'ExposedPorts': {'9828/tcp': {}},
                       'Env': ['PATH=/usr/bin:/bin'], 'Labels': self.labels},
            'rootfs': {'type': 'layers', 'diff_ids': [digest(layer)]},
            'history': [{'created': self.created, 'created_by': 'tools/release'}]})
        manifest = self._json(MANIFEST, {'schemaVersion': 2, 'mediaType': MANIFEST, 'config': config,
                                         'layers': [self._descriptor(LAYER, archive.compressed(layer))], 'annotations': self.labels})
        self.manifests.append({**manifest, 'platform': {'architecture': architecture.debian, 'os': 'linux'}})

    def write(self, folder):
        """The layout, as files of a folder. Readers take an index of one entry: ours is one level below."""
        image = self._json(INDEX, {'schemaVersion': 2, 'mediaType': INDEX, 'manifests': self.manifests, 'annotations': self.labels})
        blobs = folder / 'blobs/sha256'
        blobs.mkdir(parents=True)
        for name, data in self.blobs.items():
            (blobs / name.removeprefix('sha256:')).write_bytes(data)
        (folder / 'oci-layout').write_text('{"imageLayoutVersion":"1.0.0"}')
        entry = {**image, 'annotations': {'org.opencontainers.image.ref.name': self.version}}
        (folder / 'index.json').write_text(json.dumps({'schemaVersion': 2, 'mediaType': INDEX, 'manifests': [entry]}, sort_keys=True))
