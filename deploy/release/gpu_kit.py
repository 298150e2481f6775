# SPDX-License-Identifier: Apache-2.0
"""The GPU kit: an archive that measures the plugin on any machine with a GPU. Daemon and plugin are those of the release."""
import hashlib
import os
import pathlib

import archive
import carried

SOURCES = pathlib.Path('tests/gpu/kit')
LIBRARIES = ('libgpu-kit-programs.so', 'libnccl-profiler-empty.so', 'libnccl-profiler-probe.so')
LARGEST_BYTES = 40 << 20  # it is carried to machines by hand
TARGETS = tuple(f'//tests/gpu:{name}' for name in LIBRARIES)


def scripts():
    """Files of the kit that are in the repository, by their names in the kit."""
    files = [file for file in SOURCES.rglob('*') if file.suffix in ('.py', '.md') or file.name == 'measure']
    return {file.relative_to(SOURCES): file for file in sorted(files) if not file.name.endswith('_test.py')}


def checked(data):
    if len(data) > LARGEST_BYTES:
        raise ValueError(f'the GPU kit has {len(data)} bytes, and may have {LARGEST_BYTES}')
    return data


def write(staged, commit, seconds, output):
    staged.put_programs()
    for name in LIBRARIES:
        staged.put_built(0o644, f'tests/gpu/{name}', f'lib/{name}')
    for place, file in scripts().items():
        staged.put(0o755 if os.access(file, os.X_OK) else 0o644, file, place)
    staged.put(0o644, 'LICENSE', 'LICENSE')
    for name, data in carried.license_files(staged.packages()).items():
        staged.write(data, f'licenses/{name}')
    version = staged.output('--version').decode().split()[1]
    staged.write(f'{version} {commit}\n'.encode(), 'VERSION')
    files = [file for file in sorted(staged.prefix.rglob('*')) if file.is_file() and not file.is_symlink()]
    sums = [f'{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.relative_to(staged.prefix)}\n' for file in files]
    staged.write(''.join(sums).encode(), 'SHA256SUMS')
    name = f'nccl-exporter-gpu-kit-{staged.architecture.name}'
    (output / f'{name}.tar.gz').write_bytes(checked(archive.compressed(archive.tar(staged.prefix, f'{name}/', seconds))))
