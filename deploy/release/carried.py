# SPDX-License-Identifier: Apache-2.0
"""Files of Debian in a release: the libraries that a program needs, their packages, licenses and sources."""
import dataclasses
import pathlib
import re
import subprocess

# By package, what applies to the files that are carried; the package's copyright file has it in full, and is carried, too.
LICENSES = {
    'busybox-static': 'GPL-2.0-only',
    'libc6': 'LGPL-2.1-or-later',
    'libcli11-dev': 'BSD-3-Clause',
    'libcrypt1': 'LGPL-2.1-or-later',
    'libffi8': 'MIT',
    'libfmt9': 'MIT',
    'libgcc-s1': 'GPL-3.0-or-later WITH GCC-exception-3.1',
    'libgmp10': 'LGPL-3.0-or-later OR GPL-2.0-or-later',
    'libgnutls30': 'LGPL-2.1-or-later',
    'libhogweed6': 'LGPL-3.0-or-later OR GPL-2.0-or-later',
    'libidn2-0': 'LGPL-3.0-or-later OR GPL-2.0-or-later',
    'libisal2': 'BSD-3-Clause',
    'libmicrohttpd12': 'LGPL-2.1-or-later',
    'libnettle8': 'LGPL-3.0-or-later OR GPL-2.0-or-later',
    'libp11-kit0': 'BSD-3-Clause',
    'libprometheus-cpp-core1.0': 'MIT',
    'libspdlog1.10': 'MIT',
    'libstdc++6': 'GPL-3.0-or-later WITH GCC-exception-3.1',
    'libtasn1-6': 'LGPL-2.1-or-later',
    'libunistring2': 'LGPL-3.0-or-later OR GPL-2.0-or-later',
    'libyaml-cpp0.7': 'MIT',
    'zlib1g': 'Zlib',
}
# Compiled into the daemon, and in no library: headers alone.
COMPILED_IN = ('libcli11-dev',)
COMMON_LICENSES = pathlib.Path('/usr/share/common-licenses')


@dataclasses.dataclass(frozen=True)
class Package:
    name: str
    version: str
    architecture: str
    source: str
    source_version: str
    copyright: bytes = dataclasses.field(default=b'', compare=False, repr=False)

    @property
    def license(self):
        return LICENSES[self.name]

    @property
    def source_address(self):
        return f'https://snapshot.debian.org/package/{self.source}/{self.source_version}/'


def run(*command):
    return subprocess.run([*map(str, command)], capture_output=True, text=True, env={'PATH': '/usr/bin:/bin', 'LC_ALL': 'C'})


def needed_by(file):
    listed = run('readelf', '--dynamic', '--wide', file)
    listed.check_returncode()
    # Loading it makes code writable, which the unit (MemoryDenyWriteExecute) refuses, and SELinux may.
    if '(TEXTREL)' in listed.stdout:
        raise ValueError(f'{file} has text relocations')
    return re.findall(r'\(NEEDED\).*\[(.*)\]', listed.stdout)


class System:
    """A Debian of which a release carries files: this machine, or a folder with the packages of another architecture."""

    def __init__(self, root='/'):
        self.root = pathlib.Path(root)
        self.database = self.root / 'var/lib/dpkg'
        if not (self.database / 'status').exists():
            raise ValueError(f'{self.database} is no database of dpkg: it is not known which packages the libraries are of')

    def libraries_of(self, program, folder):
        """{name that programs ask for: file}, of the program and of its libraries. `folder` is Debian's name of the architecture."""
        folders = [self.root / place / folder for place in ('usr/lib', 'lib')]
        found, wanted = {}, needed_by(program)
        while wanted:
            name = wanted.pop()
            if name in found:
                continue
            files = [place / name for place in folders if (place / name).exists()]
            if not files:
                raise ValueError(f'{name}, which {program} needs, is in none of {", ".join(map(str, folders))}')
            found[name] = files[0].resolve()
            wanted += needed_by(found[name])
        return found

    def _query(self, *arguments):
        listed = run('dpkg-query', f'--admindir={self.database}', *arguments)
        if listed.returncode > 1:  # 1: no such package
            raise ValueError(f'{self.database}: {" ".join(listed.stderr.split())}')
        return listed

    def package_of(self, file):
        """The package of a file by dpkg, which may know a file of /usr/lib as one of /lib."""
        name = '/' + str(pathlib.Path(file).relative_to(self.root.resolve()))
        for packed in (name, name.removeprefix('/usr')):
            listed = self._query('--search', packed)
            if listed.returncode == 0:
                return self.package_called(listed.stdout.splitlines()[0].rsplit(': ', 1)[0])
        raise ValueError(f'{file} is of no Debian package')

    def package_called(self, name):
        fields = ('Package', 'Version', 'Architecture', 'source:Package', 'source:Version')
        listed = self._query('--show', '--showformat=' + '\\t'.join(f'${{{field}}}' for field in fields), name)
        if listed.returncode != 0:
            raise ValueError(f'{name} is not installed in {self.root}')
        package = Package(*listed.stdout.split('\t'))
        if package.name not in LICENSES:
            raise ValueError(f'the license of {package.name} is unknown: add it to deploy/release/carried.py')
        return dataclasses.replace(package, copyright=(self.root / 'usr/share/doc' / package.name / 'copyright').read_bytes())


def license_files(packages):
    """{name: bytes}: the copyright file of each source package, and the licenses to which these refer."""
    files = {f'{package.source}.copyright': package.copyright for package in packages}
    named = {name for text in files.values() for name in re.findall(rb'/usr/share/common-licenses/([A-Za-z0-9.-]*[A-Za-z0-9])', text)}
    for name in sorted(named):
        file = COMMON_LICENSES / name.decode()
        if file.is_file():
            files[name.decode()] = file.read_bytes()
    return files
