#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Rules that the build does not hold by itself: the table of rooms, purposes, and includes through other rooms."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, 'deploy/tests')
import build_graph
import report
import table

# Folders of others, or made by programs: neither has rooms.
SKIPPED = {'third_party', '__pycache__', 'node_modules'}

DOCUMENT = pathlib.Path('docs/rooms.md')
CHECKOUT = DOCUMENT.resolve().parent.parent


def folders(folder=CHECKOUT):
    yield folder
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith('.') and inner.name not in SKIPPED:
            yield from folders(inner)


def name_of(folder):
    return folder.relative_to(CHECKOUT).as_posix()


class Checkout(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.graph = build_graph.BuildGraph(pathlib.Path('tests/rooms/build_graph.xml').read_text(encoding='utf-8'), table.PARTS)
        cls.folders = list(folders())
        cls.builds = {name_of(folder): (folder / 'BUILD.bazel').read_text(encoding='utf-8')
                      for folder in cls.folders if (folder / 'BUILD.bazel').exists()}

    def test_the_graph_has_every_package(self):
        self.assertEqual(set(self.builds) - {'.'}, self.graph.packages, 'run tools/rooms')

    def test_the_table_is_what_the_build_has(self):
        purposes = {name: table.purpose_of(text) for name, text in self.builds.items()}
        self.assertEqual(DOCUMENT.read_text(encoding='utf-8'), table.text(self.graph, purposes), 'run tools/rooms')

    def test_a_build_file_begins_with_a_sentence_of_purpose(self):
        for name, text in self.builds.items():
            with self.subTest(name):
                self.assertRegex(text, r'\A# [A-Z`][^\n]*(\n# [^\n]*)*\.\n(?!#)')

    def test_a_file_includes_what_its_room_depends_on(self):
        """A header of a dependency's dependency builds without a word in the BUILD file."""
        files = self.graph.files()
        for path, (room, is_for_tests) in files.items():
            if not (CHECKOUT / path).is_file() or not path.endswith(('.h', '.cc')):
                continue
            allowed = {room} | self.graph.includes[room] | (self.graph.test_includes[room] if is_for_tests else set())
            for included in re.findall(r'^#include "([^"]+)"', (CHECKOUT / path).read_text(encoding='utf-8'), re.M):
                if included in files:
                    with self.subTest(f'{path} includes {included}'):
                        self.assertIn(files[included][0], allowed)


if __name__ == '__main__':
    report.main()
