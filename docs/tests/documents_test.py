#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All Markdown documents of the repository: links and anchors lead somewhere, and sentences are short and plain."""
import itertools
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


def files(*endings):
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in IGNORED and not name.startswith(('.', 'bazel-'))]
        yield from (pathlib.Path(folder, name) for name in names if name.endswith(endings))


def sources():
    return files('.h', '.cc', '.py', '.bazel', '.yml', '.in', '.yaml', '.service', '.html', '.js')


# What no package carries: docs/install-node.md says so.
REPOSITORY_ONLY = ('collector/', 'deploy/grafana/dashboards', 'deploy/helm/', 'deploy/kubernetes/', 'exporter/', 'third_party/')
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

    def test_that_are_installed_link_to_what_is_installed(self):
        sys.dont_write_bytecode = True
        sys.path.append(str(ROOT / 'deploy/release'))
        import tree
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(ROOT)
        installed = {*tree.documents(), *tree.EXAMPLES.iterdir()}
        installed |= {folder for file in installed for folder in file.parents}
        self.assertIn(pathlib.Path('docs/dashboards.md'), installed)
        for name in (str(file) for file in installed if file.suffix == '.md'):
            for line, target in markdown.links(DOCUMENTS[name]):
                path = target.partition('#')[0]
                if path and '://' not in target and not target.startswith('mailto:'):
                    leads = os.path.normpath(pathlib.Path(name).parent / path)
                    with self.subTest(f'{name}:{line}: {target}'):
                        self.assertTrue(pathlib.Path(leads) in installed or leads.startswith(REPOSITORY_ONLY) or leads == 'LICENSE')

    def test_that_sources_name_exist(self):
        for path in sources():
            for name in re.findall(r'\b(?:docs|proto|deploy|plugin|tests)/(?:[\w-]+/)*[\w-]+\.md\b', path.read_text(encoding='utf-8')):
                with self.subTest(f'{path.relative_to(ROOT)}: {name}'):
                    self.assertTrue((ROOT / name).exists(), 'no such document')

    def test_are_plain(self):
        for name, text in DOCUMENTS.items():
            with self.subTest(name):
                self.assertEqual([], [f'{line}: {finding}' for line, finding in wording.findings(text)])


class Walks(unittest.TestCase):
    """The three walks of ARCHITECTURE.md name each file once, all files exist, and a reader can follow them."""
    HEAD = '| step | what happens | files, in order |'
    MOST_FILES = {'The duration': 30, 'The lateness': 12, 'A finding': 12}

    def test_name_files_that_exist(self):
        tables = DOCUMENTS['ARCHITECTURE.md'].split(self.HEAD)[1:]
        self.assertEqual(len(self.MOST_FILES), len(tables))
        for (walk, most), table in zip(self.MOST_FILES.items(), tables):
            rows = itertools.takewhile(lambda line: line.startswith('|'), table.strip().splitlines())
            names = [name for row in rows for name in re.findall(r'`([\w/]+\.(?:h|cc))`', row)]
            with self.subTest(walk):
                self.assertEqual(len(set(names)), len(names))
                self.assertLessEqual(len(names), most)
                self.assertIn(f'passes these {len(names)} files', DOCUMENTS['ARCHITECTURE.md'])
                self.assertEqual([], [name for name in names if not (ROOT / name).exists()])


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
        self.assertEqual([1, 3], self.lines('Its companions wait.\n\nThe job runs for ever.\n'))
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
