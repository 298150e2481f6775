#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The list in README.md and the tests that play its items: each number is in both."""
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(os.path.abspath('plugin/survival'))
sys.path.insert(0, str(HERE.parent.parent / 'deploy/tests'))
import report

LISTED = re.findall(r'^\| (\d\d) \|', (HERE / 'README.md').read_text(encoding='utf-8'), re.M)
TESTED = {file.name: set(re.findall(r'^TEST_F\(\w+, Survives(\d\d)_', file.read_text(encoding='utf-8'), re.M))
          for file in HERE.glob('*_test.cc')}


class SurvivalList(unittest.TestCase):
    def test_numbers_follow_each_other(self):
        self.assertEqual(LISTED, [f'{number:02}' for number in range(1, len(LISTED) + 1)])

    def test_each_item_is_played_and_each_number_of_a_test_is_an_item(self):
        self.assertEqual(set(LISTED), set().union(*TESTED.values()))

    def test_files_play_the_items_that_they_name(self):
        for name, numbers in TESTED.items():
            named = re.search(r'^// .*: items (\d+) to (\d+) of', (HERE / name).read_text(encoding='utf-8'), re.M)
            with self.subTest(name):
                self.assertEqual(numbers, {f'{n:02}' for n in range(int(named[1]), int(named[2]) + 1)} if named else set())


if __name__ == '__main__':
    report.main()
