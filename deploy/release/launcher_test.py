#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The launcher with a shell in the daemon's place, and this machine's libc beside it."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, 'deploy/tests')
import report

LAUNCHER = os.path.abspath('deploy/release/launcher')
SHELL = '/bin/dash'


def libraries_of(program):
    listed = subprocess.run(['ldd', program], capture_output=True, text=True, check=True).stdout
    return [pathlib.Path(path) for path in re.findall(r'(/\S+) \(0x', listed)]


class Launcher(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(os.path.realpath(folder.name)) / 'a folder'
        for name in ('bin', 'lib', 'libexec'):
            (self.tree / name).mkdir(parents=True)
        shutil.copy(LAUNCHER, self.tree / 'bin/probe')
        shutil.copy(SHELL, self.tree / 'libexec/probe')
        for library in libraries_of(SHELL):
            shutil.copy(library, self.tree / 'lib' / library.name)
            if library.name.startswith('ld-'):
                (self.tree / 'lib/probe').symlink_to(library.name)

    def run_it(self, *arguments, program=None, **options):
        return subprocess.run([program or self.tree / 'bin/probe', *arguments], capture_output=True, text=True, **options)

    def test_runs_with_the_libraries_beside_it_alone(self):
        maps = self.run_it('-c', 'while read -r line; do echo "$line"; done </proc/$$/maps').stdout
        mapped = set(re.findall(r' (/.*)$', maps, re.M))
        self.assertTrue(mapped)
        self.assertEqual({path for path in mapped if not path.startswith(str(self.tree))}, set())

    def test_ignores_the_library_path_of_the_environment(self):
        wrong = self.tree / 'wrong'
        wrong.mkdir()
        (wrong / 'libc.so.6').write_text('no library')
        self.assertEqual(self.run_it('-c', 'echo ran', env={'LD_LIBRARY_PATH': str(wrong)}).stdout, 'ran\n')

    def test_keeps_name_and_arguments(self):
        result = self.run_it('-c', 'echo "$0|$1|$2"', 'zero', 'one  two', '')
        self.assertEqual(result.stdout, 'zero|one  two|\n')
        self.assertEqual(self.run_it('-c', 'echo "$0"', program='probe', executable=self.tree / 'bin/probe').stdout, 'probe\n')

    def test_a_process_is_called_after_the_daemon(self):
        self.assertEqual(self.run_it('-c', 'read -r name </proc/$$/comm && echo "$name"').stdout, 'probe\n')

    def test_starts_through_a_link_from_any_folder(self):
        link = self.tree.parent / 'link'
        link.symlink_to('a folder/bin/probe')
        self.assertEqual(self.run_it('-c', 'echo ran', program=link, cwd='/').stdout, 'ran\n')
        self.assertEqual(self.run_it('-c', 'echo ran', program='./link', cwd=self.tree.parent).stdout, 'ran\n')

    def test_keeps_the_process_and_passes_its_status_on(self):
        process = subprocess.Popen([self.tree / 'bin/probe', '-c', 'echo $$; exit 3'], stdout=subprocess.PIPE, text=True)
        self.assertEqual(process.communicate()[0].strip(), str(process.pid))
        self.assertEqual(process.returncode, 3)

    def test_says_in_one_line_what_is_missing(self):
        (self.tree / 'lib/probe').unlink()
        result = self.run_it()
        self.assertEqual(result.returncode, 127)
        self.assertEqual(result.stderr, f'probe: cannot start {self.tree}/lib/probe: No such file or directory\n')

    def test_needs_no_library_of_the_system(self):
        headers = subprocess.run(['readelf', '--program-headers', LAUNCHER], capture_output=True, text=True, check=True).stdout
        self.assertNotIn('INTERP', headers)


if __name__ == '__main__':
    report.main()
