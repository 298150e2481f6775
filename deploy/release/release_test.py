#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The parts of a release: what it carries, that its bytes follow from its contents, and what its documents say."""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import unittest

sys.path[:0] = ['deploy/tests', 'deploy/release']
import architectures
import archive
import carried
import gpu_kit
import oci_image
import packages
import report
import sbom
import tree

DAEMON = pathlib.Path('exporter/nccl-exporter')
SHELL = pathlib.Path('/bin/dash')
SECONDS = 1700000000
X86 = architectures.ALL['x86_64']
NATIVE = architectures.ALL[os.uname().machine]
GMP = carried.Package('libgmp10', '2:6.2', 'amd64', 'gmp', '2:6.2')


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def tree(self, name, *files, mask=0o022, seconds=1):
        """A tree with these files, made in this order; a link and an executable are among them."""
        old = os.umask(mask)
        root = self.folder / name / 'usr'
        for file in files:
            path = root / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'content of {file}')
            path.chmod(0o644)
            os.utime(path, (seconds, seconds))
        (root / files[0]).chmod(0o755)
        (root / 'link').symlink_to(files[0])
        for path in (root, *root.rglob('*')):
            if path.is_dir():
                path.chmod(0o755)
        os.umask(old)
        return root


class Architectures(Scratch):
    def test_an_unknown_one_is_refused_with_those_that_are_known(self):
        with self.assertRaisesRegex(ValueError, '^unknown architecture riscv64: known are x86_64, aarch64$'):
            architectures.find('riscv64')

    def test_one_that_this_checkout_cannot_build_is_refused(self):
        bazelrc = self.folder / 'bazelrc'
        bazelrc.write_text('build:clang --x\n# build:aarch64 --y\n')
        self.assertEqual(architectures.find('x86_64', bazelrc).debian, 'amd64')
        with self.assertRaisesRegex(ValueError, '^no build for aarch64: .bazelrc has no configuration aarch64$'):
            architectures.find('aarch64', bazelrc)
        bazelrc.write_text('build:aarch64 --y\n')
        self.assertEqual(architectures.find('aarch64', bazelrc).loader, 'ld-linux-aarch64.so.1')


class Carried(Scratch):
    def setUp(self):
        super().setUp()
        self.system = carried.System()

    def test_libraries_of_libraries_and_the_loader_are_among_them(self):
        libraries = self.system.libraries_of(SHELL, NATIVE.folder)
        self.assertIn('libc.so.6', libraries)
        self.assertIn(NATIVE.loader, libraries)

    def test_a_library_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(ValueError, f'^libc.so.6, which {SHELL} needs, is in none of /usr/lib/none, /lib/none$'):
            self.system.libraries_of(SHELL, 'none')

    def test_a_library_whose_code_must_be_written_is_refused(self):
        """Debian's ISA-L for Arm is one: under MemoryDenyWriteExecute the daemon would not start."""
        library = self.folder / 'libcode.so'
        subprocess.run(['gcc', '-shared', '-nostdlib', '-Wl,-z,notext', '-x', 'assembler', '-o', library, '-'], check=True, text=True,
                       input='.text\n.quad data\n.data\ndata: .quad 1\n')
        with self.assertRaisesRegex(ValueError, f'^{library} has text relocations$'):
            self.system.libraries_of(library, NATIVE.folder)

    def test_a_package_without_a_known_license_is_refused(self):
        with self.assertRaisesRegex(ValueError, '^the license of dash is unknown: add it to deploy/release/carried.py$'):
            self.system.package_of(SHELL.resolve())

    def test_a_file_of_no_package_is_refused(self):
        with self.assertRaisesRegex(ValueError, 'is of no Debian package$'):
            self.system.package_of(self.folder / 'file')

    def test_a_folder_without_a_database_is_refused(self):
        with self.assertRaisesRegex(ValueError, f'^{self.folder}/var/lib/dpkg is no database of dpkg'):
            carried.System(self.folder)

    def test_a_folder_of_another_architecture_is_asked_for_its_own_packages(self):
        database, document = self.folder / 'var/lib/dpkg', self.folder / 'usr/share/doc/libgmp10/copyright'
        for path, text in ((database / 'status', 'Package: libgmp10\nStatus: install ok installed\nArchitecture: arm64\n'
                                                 'Multi-Arch: same\nSource: gmp\nVersion: 2:7\nMaintainer: x\nDescription: y\n'),
                           (database / 'info/libgmp10:arm64.list', '/.\n/lib/a/libgmp.so.10\n'), (database / 'info/format', '1\n'),
                           (document, 'text'), (self.folder / 'usr/lib/a/libgmp.so.10', 'library')):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        package = carried.System(self.folder).package_of((self.folder / 'usr/lib/a/libgmp.so.10').resolve())
        self.assertEqual(package, carried.Package('libgmp10', '2:7', 'arm64', 'gmp', '2:7'))
        self.assertEqual(package.copyright, b'text')

    def test_a_broken_database_is_refused_with_the_reason_of_dpkg(self):
        database = self.folder / 'var/lib/dpkg'
        database.mkdir(parents=True)
        (database / 'status').write_text('no field\n')
        with self.assertRaisesRegex(ValueError, f'^{database}: dpkg-query: .*status'):
            carried.System(self.folder).package_of(self.folder.resolve() / 'file')

    def test_all_that_the_daemon_needs_has_a_license_and_a_copyright_file(self):
        libraries = self.system.libraries_of(DAEMON, NATIVE.folder)
        if any(name.startswith(('libasan', 'libubsan', 'libtsan')) for name in libraries):
            self.skipTest('a sanitizer is no part of a release')
        found = {self.system.package_of(file) for file in libraries.values()}
        found |= {self.system.package_called(name) for name in carried.COMPILED_IN}
        self.assertTrue({'libc6', 'libgnutls30', 'libcli11-dev'} <= {package.name for package in found})
        files = carried.license_files(found)
        self.assertEqual({f'{package.source}.copyright' for package in found} - set(files), set())
        self.assertIn('LGPL-2.1', files)


class Tree(unittest.TestCase):
    def test_all_that_is_copied_is_in_the_repository(self):
        for sources, _ in tree.COPIED:
            with self.subTest(sources):
                self.assertTrue(list(pathlib.Path('.').glob(sources)))

    def test_all_of_slurm_and_systemd_is_copied(self):
        copied = {path for sources, _ in tree.COPIED for path in pathlib.Path('.').glob(sources)}
        for folder in ('deploy/slurm', 'deploy/systemd'):
            self.assertEqual(set(pathlib.Path(folder).iterdir()) - copied, set())


class GpuKit(unittest.TestCase):
    def test_has_its_scripts_and_its_page_and_no_test(self):
        scripts = gpu_kit.scripts()
        self.assertLessEqual({'measure', 'README.md', 'torch_job.py', 'parts/__init__.py', 'parts/right.py'}, set(map(str, scripts)))
        self.assertEqual([name for name in map(str, scripts) if 'test' in name], [])
        self.assertTrue(os.access(scripts[pathlib.Path('measure')], os.X_OK))

    def test_that_is_too_large_is_refused(self):
        largest = bytes(40 << 20)
        self.assertEqual(gpu_kit.checked(largest), largest)
        with self.assertRaisesRegex(ValueError, 'has 41943041 bytes, and may have 41943040'):
            gpu_kit.checked(largest + b'x')


class Archive(Scratch):
    def test_the_bytes_follow_from_names_contents_and_modes_alone(self):
        one = self.tree('one', 'bin/x', 'share/a', 'share/b')
        two = self.tree('two', 'bin/x', 'share/b', 'share/a', mask=0o027, seconds=5)
        self.assertEqual(archive.compressed(archive.tar(one, 'top/', SECONDS)), archive.compressed(archive.tar(two, 'top/', SECONDS)))
        (two / 'share/a').chmod(0o600)
        self.assertNotEqual(archive.tar(one, 'top/', SECONDS), archive.tar(two, 'top/', SECONDS))

    def test_all_is_of_root_and_of_the_commits_time(self):
        root = self.tree('one', 'bin/x', 'run/y')
        with tarfile.open(fileobj=io.BytesIO(archive.tar(root, 'top/', SECONDS, {'run': 65532}))) as made:
            self.assertEqual({(entry.uid, entry.gid, entry.uname, entry.mtime) for entry in made if entry.name != 'top/run'}, {(0, 0, '', SECONDS)})
            self.assertEqual(made.getmember('top/run').uid, 65532)
            self.assertEqual(made.getmember('top/link').linkname, 'bin/x')

    def test_a_second_name_of_a_file_has_the_content(self):
        root = self.tree('one', 'bin/x')
        os.link(root / 'bin/x', root / 'bin/y')
        with tarfile.open(fileobj=io.BytesIO(archive.tar(root, '', SECONDS))) as made:
            self.assertEqual(made.extractfile('bin/y').read(), b'content of bin/x')


class Packages(Scratch):
    def deb(self, name, **options):
        output = self.folder / f'{name}-out'
        output.mkdir()
        packages.deb(self.tree(name, 'bin/x', 'share/doc/nccl-exporter/README.md', **options), '9.8.7', X86, SECONDS, output)
        return output / 'nccl-exporter_9.8.7_amd64.deb'

    def test_the_bytes_of_a_deb_follow_from_its_files(self):
        self.assertEqual(self.deb('one').read_bytes(), self.deb('two', mask=0o027, seconds=5).read_bytes())

    def test_a_deb_depends_on_nothing_but_what_makes_its_user(self):
        fields = subprocess.run(['dpkg-deb', '--field', self.deb('one')], capture_output=True, text=True, check=True).stdout
        self.assertIn('\nDepends: passwd\n', fields)
        self.assertIn('\nVersion: 9.8.7\n', '\n' + fields)
        self.assertNotIn('@', fields.replace('nccl-exporter@users', ''))

    def test_a_deb_is_of_root_and_has_the_defaults_as_configuration(self):
        listed = subprocess.run(['dpkg-deb', '--contents', self.deb('one')], capture_output=True, text=True, check=True).stdout
        self.assertEqual({line.split()[1] for line in listed.splitlines()}, {'root/root'})
        self.assertIn('./etc/default/nccl-exporter\n', listed)

    def test_a_choice_of_licenses_stays_one_among_the_others(self):
        self.assertEqual(packages.license_of_all({'MIT', 'A OR B', 'C WITH D'}), '(A OR B) AND C WITH D AND MIT')

    def test_an_rpm_lists_each_file_and_no_folder_of_others(self):
        root = self.tree('one', 'bin/x', 'share/nccl-exporter/y', 'etc/default/z')
        self.assertEqual(packages.rpm_files(root).splitlines(), [
            '"/bin/x"', '%config(noreplace) "/etc/default/z"', '"/link"', '%dir "/share/nccl-exporter"', '"/share/nccl-exporter/y"'])


class Image(Scratch):
    def layout(self, name, **options):
        image = oci_image.Image('9.8.7', 'abc', SECONDS)
        for architecture in architectures.ALL.values():
            image.add(architecture, self.tree(f'{name}-{architecture.name}', 'bin/x', 'run/nccl-exporter/y', **options))
        image.write(self.folder / name)
        return self.folder / name

    def blob(self, layout, descriptor):
        data = (layout / 'blobs/sha256' / descriptor['digest'].removeprefix('sha256:')).read_bytes()
        self.assertEqual((oci_image.digest(data), len(data)), (descriptor['digest'], descriptor['size']))
        return data

    def test_every_part_is_found_by_its_digest_and_size(self):
        layout = self.layout('one')
        top, = json.loads((layout / 'index.json').read_text())['manifests']
        self.assertEqual(top['annotations']['org.opencontainers.image.ref.name'], '9.8.7')
        manifests = json.loads(self.blob(layout, top))['manifests']
        self.assertEqual([entry['platform']['architecture'] for entry in manifests], ['amd64', 'arm64'])
        for entry in manifests:
            manifest = json.loads(self.blob(layout, entry))
            config = json.loads(self.blob(layout, manifest['config']))
            layer, = manifest['layers']
            content = archive.gzip.decompress(self.blob(layout, layer))
            self.assertEqual(config['rootfs']['diff_ids'], [oci_image.digest(content)])
            self.assertEqual(config['config']['User'], '65532:65532')
            with tarfile.open(fileobj=io.BytesIO(content)) as made:
                self.assertEqual(made.getmember('run/nccl-exporter').uid, 65532)

    def test_the_bytes_follow_from_the_files(self):
        one, two = self.layout('one'), self.layout('two', mask=0o027, seconds=5)
        self.assertEqual(archive.tar(one, '', 0), archive.tar(two, '', 0))


class BillOfMaterials(unittest.TestCase):
    def setUp(self):
        self.files = {'lib/libgmp.so.10': (b'gmp', GMP), 'bin/daemon': (b'own', None)}
        headers = carried.Package('libcli11-dev', '2.1', 'all', 'cli11', '2.1')
        self.text = sbom.document('nccl-exporter-9.8.7-x86_64', '9.8.7', 'abc', SECONDS, self.files, [headers, GMP])
        self.bill = json.loads(self.text)

    def test_what_is_related_is_there_and_named_once(self):
        names = [entry['SPDXID'] for entry in self.bill['packages'] + self.bill['files']]
        self.assertEqual(len(names), len(set(names)))
        for relation in self.bill['relationships']:
            self.assertIn(relation['relatedSpdxElement'], names)
            self.assertIn(relation['spdxElementId'], ['SPDXRef-DOCUMENT', *names])

    def test_each_file_belongs_to_its_package_by_checksum(self):
        contains = {(relation['spdxElementId'], relation['relatedSpdxElement']) for relation in self.bill['relationships']}
        self.assertIn(('SPDXRef-package-libgmp10', 'SPDXRef-file-lib-libgmp.so.10'), contains)
        self.assertIn((sbom.OWN, 'SPDXRef-file-bin-daemon'), contains)
        sums = {entry['fileName']: entry['checksums'][1]['checksumValue'] for entry in self.bill['files']}
        self.assertEqual(sums['./lib/libgmp.so.10'], hashlib.sha256(b'gmp').hexdigest())

    def test_a_package_says_version_license_source_and_what_was_seen_of_it(self):
        own, headers, gmp = self.bill['packages']
        self.assertEqual((own['name'], own['versionInfo'], own['licenseDeclared']), ('nccl-exporter', '9.8.7', 'Apache-2.0'))
        self.assertEqual((gmp['versionInfo'], gmp['licenseDeclared']), ('2:6.2', 'LGPL-3.0-or-later OR GPL-2.0-or-later'))
        self.assertEqual(gmp['downloadLocation'], 'https://snapshot.debian.org/package/gmp/2:6.2/')
        code = hashlib.sha1(hashlib.sha1(b'gmp').hexdigest().encode()).hexdigest()
        self.assertEqual(gmp['packageVerificationCode'], {'packageVerificationCodeValue': code})
        self.assertFalse(headers['filesAnalyzed'])

    def test_it_is_of_the_commits_time(self):
        self.assertEqual(self.bill['creationInfo']['created'], '2023-11-14T22:13:20Z')
        self.assertEqual(self.text, sbom.document('nccl-exporter-9.8.7-x86_64', '9.8.7', 'abc', SECONDS, dict(reversed(self.files.items())),
                                                  [carried.Package('libcli11-dev', '2.1', 'all', 'cli11', '2.1'), GMP]))


if __name__ == '__main__':
    report.main()
