# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of a release as SPDX 2.3: its files, and the Debian packages that they come from."""
import datetime
import hashlib
import json
import re

OWN = 'SPDXRef-nccl-exporter'


def identifier(kind, name):
    return f'SPDXRef-{kind}-' + re.sub(r'[^A-Za-z0-9.-]', '-', name)


def file_entry(name, data):
    return {
        'SPDXID': identifier('file', name), 'fileName': f'./{name}',
        'checksums': [{'algorithm': 'SHA1', 'checksumValue': hashlib.sha1(data).hexdigest()},
                      {'algorithm': 'SHA256', 'checksumValue': hashlib.sha256(data).hexdigest()}],
        'licenseConcluded': 'NOASSERTION', 'copyrightText': 'NOASSERTION',
    }


def verification_code(entries):
    return hashlib.sha1(''.join(sorted(entry['checksums'][0]['checksumValue'] for entry in entries)).encode()).hexdigest()


def analyzed(package, entries):
    """The two fields by which SPDX says which files a package was seen to have."""
    if not entries:
        return {**package, 'filesAnalyzed': False}
    return {**package, 'filesAnalyzed': True, 'packageVerificationCode': {'packageVerificationCodeValue': verification_code(entries)}}


def own_package(version):
    return {'SPDXID': OWN, 'name': 'nccl-exporter', 'versionInfo': version, 'downloadLocation': 'NOASSERTION',
            'licenseConcluded': 'Apache-2.0', 'licenseDeclared': 'Apache-2.0', 'copyrightText': '2026 the nccl-exporter developers',
            'primaryPackagePurpose': 'APPLICATION'}


def debian_package(package):
    address = f'pkg:deb/debian/{package.name.replace("+", "%2B")}@{package.version.replace("+", "%2B")}?arch={package.architecture}'
    return {'SPDXID': identifier('package', package.name), 'name': package.name, 'versionInfo': package.version,
            'supplier': 'Organization: Debian', 'downloadLocation': package.source_address,
            'sourceInfo': f'built by Debian from {package.source} {package.source_version}',
            'licenseConcluded': 'NOASSERTION', 'licenseDeclared': package.license, 'copyrightText': 'NOASSERTION',
            'externalRefs': [{'referenceCategory': 'PACKAGE-MANAGER', 'referenceType': 'purl', 'referenceLocator': address}]}


def document(title, version, commit, seconds, files, packages):
    """`files`: {name below the prefix: (bytes, the Debian package or None for our own)}; `packages`: all, with files or without."""
    entries = {name: file_entry(name, data) for name, (data, _) in sorted(files.items())}

    def of(package):
        return [entry for name, entry in entries.items() if files[name][1] == package]

    relationships = [('SPDXRef-DOCUMENT', 'DESCRIBES', OWN)]
    relationships += [(OWN, 'CONTAINS', identifier('package', package.name)) for package in packages]
    for package in (None, *packages):
        owner = identifier('package', package.name) if package else OWN
        relationships += [(owner, 'CONTAINS', entry['SPDXID']) for entry in of(package)]
    created = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc).strftime('%Y-%m-%dT%H:%M:%SZ')
    return json.dumps({
        'spdxVersion': 'SPDX-2.3', 'dataLicense': 'CC0-1.0', 'SPDXID': 'SPDXRef-DOCUMENT', 'name': title,
        'documentNamespace': f'https://github.com/nccl-exporter/nccl-exporter/sbom/{title}-{commit}',
        'creationInfo': {'created': created, 'creators': ['Tool: nccl-exporter-release']},
        'packages': [analyzed(own_package(version), of(None)), *(analyzed(debian_package(package), of(package)) for package in packages)],
        'files': list(entries.values()),
        'relationships': [{'spdxElementId': element, 'relationshipType': kind, 'relatedSpdxElement': other}
                          for element, kind, other in relationships],
    }, indent=1) + '\n'
