#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""What the build does not hold by itself: includes through other rooms, a room's sentence of purpose, and how many files a folder has."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, 'deploy/tests')
import build_graph
import report
import table

# Of others, or made: neither has rooms.
SKIPPED = {'third_party', '__pycache__', 'node_modules'}

DOCUMENT = pathlib.Path('ARCHITECTURE.md')
CHECKOUT = DOCUMENT.resolve().parent


def folders(folder=CHECKOUT):
    yield folder
    for inner in sorted(folder.iterdir()):
        if inner.is_dir() and not inner.is_symlink() and not inner.name.startswith('.') and inner.name not in SKIPPED:
            yield from folders(inner)


def name_of(folder):
    return folder.relative_to(CHECKOUT).as_posix()


class Checkout(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.rows = table.rows(DOCUMENT.read_text(encoding='utf-8'))
        cls.graph = build_graph.BuildGraph(pathlib.Path('tests/rooms/build_graph.xml').read_text(encoding='utf-8'), cls.rows)
        cls.folders = list(folders())
        cls.builds = {name_of(folder): (folder / 'BUILD.bazel').read_text(encoding='utf-8')
                      for folder in cls.folders if (folder / 'BUILD.bazel').exists()}

    def test_the_graph_has_every_package(self):
        self.assertEqual(set(self.builds) - {'.'}, self.graph.packages)

    def test_a_build_file_begins_with_a_sentence_of_purpose(self):
        for name, text in self.builds.items():
            with self.subTest(name):
                self.assertRegex(text, r'\A# [A-Z`][^\n]*(\n# [^\n]*)*\.\n(?!#)')

    def test_a_file_includes_what_the_row_of_its_room_names(self):
        """A header of a dependency's dependency builds without a word in the BUILD file."""
        files = self.graph.files()
        for path, (room, is_for_tests) in files.items():
            if not (CHECKOUT / path).is_file() or not path.endswith(('.h', '.cc')):
                continue
            code, tests = self.rows[room]
            allowed = {room} | code | (tests if is_for_tests else set())
            for included in re.findall(r'^#include "([^"]+)"', (CHECKOUT / path).read_text(encoding='utf-8'), re.M):
                if included in files:
                    with self.subTest(f'{path} includes {included}'):
                        self.assertIn(files[included][0], allowed)


if __name__ == '__main__':
    report.main()
