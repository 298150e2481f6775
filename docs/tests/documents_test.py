#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All Markdown documents of the repository: links and anchors lead somewhere, and sentences are short and plain."""
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(os.path.abspath('docs/tests'))
sys.path[:0] = [str(HERE), str(HERE.parent.parent / 'deploy/tests')]
import markdown
import report
import wording

# Links lead to files that are no inputs of this test, so that it looks at the working tree itself.
ROOT = pathlib.Path(os.path.realpath(HERE / 'markdown.py')).parent.parent.parent
IGNORED = {line.strip().strip('/') for line in (ROOT / '.gitignore').read_text().splitlines()}

# Documents that still have findings. Names leave this list and never come back.
NOT_YET_PLAIN = {
    'ARCHITECTURE.md',
}


def files(*endings):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in IGNORED and not name.startswith(('.', 'bazel-'))]
        yield from (pathlib.Path(folder, name) for name in names if name.endswith(endings))


def sources():
    return files('.h', '.cc', '.py', '.bazel', '.yml', '.in', '.yaml', '.service', '.html', '.js')


DOCUMENTS = {str(path.relative_to(ROOT)): path.read_text(encoding='utf-8') for path in files('.md')}


class Documents(unittest.TestCase):
    def test_are_found(self):
        for name in ('README.md', 'docs/alerts.md', 'docs/runbooks/NCCLHangCulprit.md', 'proto/README.md'):
            self.assertIn(name, DOCUMENTS)

    def test_links_lead_to_files_and_headings(self):
        for name, text in DOCUMENTS.items():
            for line, target in markdown.links(text):
                if '://' in target or target.startswith('mailto:'):
                    continue
                path, _, anchor = target.partition('#')
                file = (ROOT / name).parent / path if path else ROOT / name
                with self.subTest(f'{name}:{line}: {target}'):
                    self.assertTrue(file.exists(), 'no such file')
                    if anchor:
                        self.assertIn(anchor, list(markdown.anchors(file.read_text(encoding='utf-8'))))

    def test_that_sources_name_exist(self):
        for path in sources():
            for name in re.findall(r'\b(?:docs|proto|deploy|plugin|tests)/(?:[\w-]+/)*[\w-]+\.md\b', path.read_text(encoding='utf-8')):
                with self.subTest(f'{path.relative_to(ROOT)}: {name}'):
                    self.assertTrue((ROOT / name).exists(), 'no such document')

    def test_are_plain(self):
        for name in DOCUMENTS.keys() - NOT_YET_PLAIN:
            with self.subTest(name):
                self.assertEqual([], [f'{line}: {finding}' for line, finding in wording.findings(DOCUMENTS[name])])

    def test_that_are_plain_by_now_are_not_listed(self):
        for name in NOT_YET_PLAIN:
            with self.subTest(name):
                self.assertTrue(list(wording.findings(DOCUMENTS[name])), 'take it out of NOT_YET_PLAIN')


class Wording(unittest.TestCase):
    def lines(self, text):
        return [line for line, _ in wording.findings(text)]

    def test_finds_a_long_sentence(self):
        self.assertEqual([3], self.lines('# Title\n\n' + 'word ' * 31 + 'end. Another one.\n'))
        self.assertEqual([], self.lines('Word ' * 29 + 'end. ' + 'Word ' * 29 + 'end.\n'))

    def test_finds_one_in_a_list_and_in_a_table(self):
        self.assertEqual([1], self.lines('- ' + 'word ' * 31))
        self.assertEqual([3], self.lines('| head |\n|---|\n| ' + 'word ' * 31 + ' |\n'))

    def test_finds_words_and_beginnings(self):
        self.assertEqual([1, 2, 4], self.lines('- It is told.\n- What a rank does is counted.\n\nIt begins Anew.\n'))
        self.assertEqual([], self.lines('What is NCCL?\n'))

    def test_finds_a_paragraph_of_two_lines(self):
        self.assertEqual([2, 5], self.lines('one\ntwo\n\n- three\n  four\n- five\n'))

    def test_leaves_out_code_and_tables_that_come_from_the_code(self):
        self.assertEqual([], self.lines('```\nIt tells\nanew.\n```\n`told`\n'))
        self.assertEqual([], self.lines('| flag | default | meaning |\n|---|---|---|\n| a | b | It tells. |\n'))

    def test_makes_anchors_as_github_does(self):
        self.assertEqual(['a-b_c--d', 'a-b_c--d-1'], list(markdown.anchors('# A `b_C` & d!\n\n## A b_C & d\n')))


if __name__ == '__main__':
    report.main()
