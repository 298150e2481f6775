# SPDX-License-Identifier: Apache-2.0
"""The architectures of a release: their names in each format, and how Bazel builds them."""
import dataclasses
import pathlib
import re


@dataclasses.dataclass(frozen=True)
class Architecture:
    name: str      # of the kernel and of RPM
    debian: str    # of Debian and of OCI
    folder: str    # of Debian's libraries
    loader: str
    tools: str     # prefix of binutils
    config: str    # of Bazel; empty: the build without one
    root: str      # variable with the folder of Debian's packages for it (tools/CONFIG-root makes one); empty: this machine


ALL = {
    architecture.name: architecture for architecture in (
        Architecture('x86_64', 'amd64', 'x86_64-linux-gnu', 'ld-linux-x86-64.so.2', 'x86_64-linux-gnu-', '', ''),
        Architecture('aarch64', 'arm64', 'aarch64-linux-gnu', 'ld-linux-aarch64.so.1', 'aarch64-linux-gnu-', 'aarch64',
                     'NCCL_EXPORTER_AARCH64_ROOT'),
    )
}


def find(name, bazelrc=pathlib.Path('.bazelrc')):
    """The architecture of this name; ValueError with the reason if it cannot be built here."""
    if name not in ALL:
        raise ValueError(f'unknown architecture {name}: known are {", ".join(ALL)}')
    config = ALL[name].config
    if config and not re.search(f'^build:{config} ', bazelrc.read_text(encoding='utf-8'), re.M):
        raise ValueError(f'no build for {name}: .bazelrc has no configuration {config}')
    return ALL[name]
