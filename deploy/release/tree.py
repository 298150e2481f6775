# SPDX-License-Identifier: Apache-2.0
"""The files that a release installs, laid out below a prefix: /usr in the packages, any folder from the archive."""
import gzip
import os
import pathlib
import shutil
import subprocess

import carried

LAUNCHER = 'deploy/release/launcher'
DAEMON = 'exporter/nccl-exporter'
PLUGIN = 'plugin/libnccl-profiler-exporter.so'
EXTENSIONS = tuple(f'extension/libnccl-exporter-extension-{name}.so' for name in ('csv', 'example', 'site-labels'))
TARGETS = tuple('//' + ':'.join(path.rsplit('/', 1)) for path in (LAUNCHER, DAEMON, PLUGIN, *EXTENSIONS))
# The parts of lib/nccl-exporter. The libraries have a folder of their own: jobs may have the plugin's in LD_LIBRARY_PATH.
HOME = pathlib.Path('lib/nccl-exporter')
DOCUMENTS = pathlib.Path('share/doc/nccl-exporter')
SBOM = DOCUMENTS / 'sbom.spdx.json'

# The unit of the segments' file system; Bazel takes no backslash in the name of a file. It is enabled by its link, before any script runs.
MOUNT = r'run-nccl\x2dexporter.mount'
MOUNT_LINK = pathlib.Path('lib/systemd/system/local-fs.target.wants') / MOUNT

# As they are in the repository: (files, place below the prefix). A place that ends with / keeps the name.
COPIED = (
    ('deploy/image/place-plugin', 'libexec/nccl-exporter/'),
    ('deploy/systemd/*.service', 'lib/systemd/system/'),
    ('deploy/systemd/run-nccl-exporter.mount', f'lib/systemd/system/{MOUNT}'),
    ('deploy/systemd/nccl-exporter.tmpfiles', 'lib/tmpfiles.d/nccl-exporter.conf'),
    ('deploy/systemd/nccl-exporter.sysusers', 'lib/sysusers.d/nccl-exporter.conf'),
    ('deploy/systemd/nccl-exporter.default', 'share/nccl-exporter/systemd/'),
    ('deploy/prometheus/nccl-exporter.rules.yml', 'share/nccl-exporter/prometheus/'),
    ('deploy/prometheus/examples/*', 'share/nccl-exporter/prometheus/examples/'),
    ('deploy/grafana/dashboards/*.json', 'share/nccl-exporter/grafana/'),
    ('deploy/grafana/provider.yaml', 'share/nccl-exporter/grafana/'),
    ('deploy/slurm/*', 'share/nccl-exporter/slurm/'),
    ('deploy/debian/copyright', f'{DOCUMENTS}/'),
    ('LICENSE', f'{DOCUMENTS}/'),
)
# Where they are in the repository, for they link to each other.
DOCUMENT_FOLDERS = ('docs', 'deploy', 'plugin', 'proto', 'tests')
PICTURES = pathlib.Path('docs/pictures')
SCHEMA = pathlib.Path('docs/findings.schema.json')
INTERFACE = (pathlib.Path('extension/nccl_exporter_extension.h'), pathlib.Path('extension/example.c'))
EXAMPLES = pathlib.Path('deploy/prometheus/examples')


def documents():
    folders = [pathlib.Path('.').glob('*.md')] + [pathlib.Path(folder).rglob('*.md') for folder in DOCUMENT_FOLDERS]
    return sorted({file for files in folders for file in files} | {SCHEMA, *INTERFACE, *PICTURES.iterdir()})


class Tree:
    def __init__(self, prefix, built, architecture, system):
        self.prefix, self.built, self.architecture, self.system = prefix, built, architecture, system
        # (name below the prefix, Debian package or None): the files of the bill of materials.
        self.origins = {}

    def put(self, mode, source, place):
        target = self.prefix / place
        self.make_folder(target.parent)
        shutil.copyfile(source, target)
        target.chmod(mode)

    def write(self, data, place):
        self.make_folder((self.prefix / place).parent)
        (self.prefix / place).write_bytes(data)
        (self.prefix / place).chmod(0o644)

    def make_folder(self, folder):
        folder.mkdir(parents=True, exist_ok=True)

    def stage(self):
        self.put_programs()
        self._put_texts()
        for sources, place in COPIED:
            files = sorted(pathlib.Path('.').glob(sources))
            if not files:
                raise ValueError(f'no such file: {sources}')
            for file in files:
                self.put(0o755 if os.access(file, os.X_OK) else 0o644, file, place + file.name if place.endswith('/') else place)
        for file in documents():
            self.put(0o644, file, DOCUMENTS / file)
        self.make_folder((self.prefix / MOUNT_LINK).parent)
        (self.prefix / MOUNT_LINK).symlink_to(f'../{MOUNT}')
        # Documents link to the examples. These name the rules in the folder above.
        examples = self.prefix / DOCUMENTS / EXAMPLES
        examples.symlink_to(os.path.relpath(self.prefix / 'share/nccl-exporter/prometheus/examples', examples.parent))

    def put_built(self, mode, source, place):
        """A program or library of ours, without its symbols."""
        self.put(mode, self.built / source, place)
        subprocess.run([f'{self.architecture.tools}strip', '--strip-unneeded', '--remove-section=.comment', self.prefix / place], check=True)
        self.origins[str(place)] = None

    def put_programs(self):
        for mode, source, place in ((0o755, LAUNCHER, HOME / 'bin/nccl-exporter'), (0o755, DAEMON, HOME / 'libexec/nccl-exporter'),
                                    (0o644, PLUGIN, HOME / pathlib.Path(PLUGIN).name),
                                    *((0o644, extension, HOME / 'extensions' / pathlib.Path(extension).name) for extension in EXTENSIONS)):
            self.put_built(mode, source, place)
        self._put_libraries()
        self.make_folder(self.prefix / 'bin')
        (self.prefix / 'bin/nccl-exporter').symlink_to(f'../{HOME}/bin/nccl-exporter')

    def _put_libraries(self):
        libraries = self.system.libraries_of(self.built / DAEMON, self.architecture.folder)
        if self.architecture.loader not in libraries:
            raise ValueError(f'{DAEMON} is not for {self.architecture.name}: it does not use {self.architecture.loader}')
        for name, file in sorted(libraries.items()):
            place = HOME / 'lib' / name
            # The loader is started, the others are mapped.
            self.put(0o755 if name == self.architecture.loader else 0o644, file, place)
            self.origins[str(place)] = self.system.package_of(file)
        (self.prefix / HOME / 'lib/nccl-exporter').symlink_to(self.architecture.loader)

    def _put_texts(self):
        self.write(gzip.compress(self.output('man'), 9, mtime=0), 'share/man/man1/nccl-exporter.1.gz')
        for name, data in carried.license_files(self.packages()).items():
            self.write(data, DOCUMENTS / 'licenses' / name)

    def packages(self):
        own = {package for package in self.origins.values() if package}
        return sorted(own | {self.system.package_called(name) for name in carried.COMPILED_IN}, key=lambda package: package.name)

    def output(self, *arguments):
        """Output of the daemon as it is installed. One of another architecture is run by qemu."""
        native = os.uname().machine == self.architecture.name
        program = [] if native else [f'qemu-{self.architecture.name}']
        program += [self.prefix / HOME / 'bin/nccl-exporter'] if native else [
            self.prefix / HOME / 'lib' / self.architecture.loader, '--library-path', self.prefix / HOME / 'lib',
            self.prefix / HOME / 'libexec/nccl-exporter']
        return subprocess.run([*map(str, program), *arguments], check=True, stdout=subprocess.PIPE).stdout
