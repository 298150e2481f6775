#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""All Markdown documents of the repository: links and anchors lead somewhere, and sentences are short and plain. All comments can be read alone."""
import itertools
import os
import pathlib
import re
import sys
import unittest

HERE = pathlib.Path(os.path.abspath('docs/tests'))
sys.path[:0] = [str(HERE), str(HERE.parent.parent / 'deploy/tests')]
import comments
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


# Parts of the repository that no package carries: docs/install-node.md says so.
REPOSITORY_ONLY = ('collector/', 'deploy/act', 'deploy/grafana/dashboards', 'deploy/helm/', 'deploy/kubernetes/', 'exporter/', 'third_party/')
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


class Comments(unittest.TestCase):
    def test_can_be_read_alone(self):
        readable = ('.h', '.cc', '.py', '.bazel', '.bzl', '.sh')
        names = [str(path.relative_to(ROOT)) for path in files('') if path.suffix in readable or not path.suffix]
        self.assertLess({'proto/buckets.h', 'tools/demo', 'docs/tests/wording.py'}, set(names))
        for name in names:
            with self.subTest(name):
                text = (ROOT / name).read_text(encoding='utf-8', errors='replace')
                self.assertEqual([], [f'{line}: {finding}' for line, finding in wording.source_findings(name, text)])


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


class Example(unittest.TestCase):
    """docs/extensions.md explains extension/example.c line by line."""
    SOURCE = (ROOT / 'extension/example.c').read_text(encoding='utf-8').splitlines()
    ROWS = re.findall(r'^- (\d+)(?:-(\d+))?: (.*)$', DOCUMENTS['docs/extensions.md'], re.MULTILINE)

    def lines(self, row):
        return range(int(row[0]), int(row[1] or row[0]) + 1)

    def test_has_each_line_of_code_explained_once_and_in_order(self):
        code = [number for number, line in enumerate(self.SOURCE, 1) if line and not (number <= 2 and line.startswith('/*'))]
        explained = [number for row in self.ROWS for number in self.lines(row)]
        self.assertEqual(explained, sorted(set(explained)))
        self.assertEqual(code, [number for number in explained if number > len(self.SOURCE) or self.SOURCE[number - 1]])
        self.assertGreaterEqual(len(self.ROWS), 10)

    def test_has_what_its_explanation_names(self):
        header = (ROOT / 'extension/nccl_exporter_extension.h').read_text(encoding='utf-8')
        for row in self.ROWS:
            lines = '\n'.join(self.SOURCE[number - 1] for number in self.lines(row))
            names = re.findall(r'`([\w*]+)[^`]*`', row[2])
            with self.subTest(row):
                self.assertIn(' '.join(names[:1]), lines)
                self.assertEqual([], [name for name in names[1:] if name not in lines + header])

    def test_has_at_most_60_lines(self):
        self.assertLessEqual(len(self.SOURCE), 60)


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


class WordingOfComments(unittest.TestCase):
    def lines(self, text, name='a.cc'):
        return [line for line, _ in wording.source_findings(name, text)]

    def test_finds_beginnings_without_a_subject(self):
        for beginning in ('Of', 'The same', 'Same', 'As above', 'See above', 'Like above', 'And', 'But', 'What', 'Who', 'How', 'Which'):
            with self.subTest(beginning):
                self.assertEqual([2], self.lines(f'int a;\n// {beginning} the rank.\n// Seconds.\nint b;\n'))
                self.assertEqual([2], self.lines(f'pass\n# {beginning.lower()} the rank\n', 'a.py'))
                self.assertEqual([2], self.lines(f'#!/bin/sh\n# {beginning} the rank\n', 'tools/a'))
        self.assertEqual([], self.lines('// Offsets, samesides, buttons and androids.\n// Of what?\n'))

    def test_finds_avoided_words(self):
        self.assertEqual([1, 3], self.lines('// A rank. It is told.\nint a;\nint b;  // runs for ever\n'))
        self.assertEqual([1], self.lines('true  # Begins anew.\n', 'a.sh'))

    def test_lets_a_comment_behind_code_continue_it(self):
        self.assertEqual([], self.lines('int size;  // of the header\nint more;  // and its words\n'))
        self.assertEqual([1, 2], self.lines('int size;  // the same\nint more;  // what is left\n'))

    def test_begins_a_comment_at_each_column_and_behind_the_license(self):
        self.assertEqual([2], self.lines('// SPDX-License-Identifier: Apache-2.0\n// What it is.\n'))
        self.assertEqual([2], self.lines('int a;  // size\n// What b is.\nint b;\n'))
        self.assertEqual([], self.lines('int a;  // size:\n        // of the header\n'))

    def test_reads_docstrings(self):
        self.assertEqual([1, 3, 5], self.lines('"""What it is."""\nclass A:\n    """The same."""\n    def b():\n        """Of b."""\n', 'a.py'))

    def test_leaves_out_literals_and_questions(self):
        self.assertEqual([], self.lines('a("// What");\nb(R"x(\n// Of\n)x", 1\'000);\n// What is NCCL?\n'))
        self.assertEqual([], self.lines('a = "# What"\nb = """\n# Of\n"""\n', 'a.py'))
        self.assertEqual([], self.lines('#!/bin/bash\necho "# What" $# \'# Of\' ${a#Of}\n', 'a'))
        self.assertEqual([], self.lines('// What\n', 'a.js'))

    def test_finds_a_word_that_the_formatter_left_alone(self):
        self.assertEqual([2], self.lines(f'// {"word " * 18}\n// one\n// and so on.\n'))
        self.assertEqual([], self.lines(f'// {"word " * 18}\n// one.\n'))
        self.assertEqual([], self.lines(f'// 1. {"word " * 18}\n//    one.\n// 2. Two.\n'))
        self.assertEqual([], self.lines(f'//   name  {"word " * 15}\n//         one.\n//   other  Two.\n'))

    def test_finds_a_line_that_the_formatter_has_cut(self):
        self.assertEqual([2], self.lines('// A rank.\n// It waits\n// for another one.\n'))
        self.assertEqual([2, 4], self.lines('// A rank:\n// - It waits\n//   for another one.\n// - It waits\n//   for itself.\n'))
        self.assertEqual([], self.lines('// A rank.\n// Another one:\n// - first\n// - second\n'))
        self.assertEqual([], self.lines('// +---+---+\n// | a | b |\n//\n// one   two\n// three  four\n'))
        self.assertEqual([], self.lines(f'// {"word " * 18}\n// another.\n'))

    def test_finds_a_definition_that_a_comment_has_split(self):
        self.assertEqual([1], self.lines('int64_t size =\n    0;  // bytes\n'))
        self.assertEqual([], self.lines(f'int64_t size =\n    {"9" * 90};  // bytes\n'))
        self.assertEqual([], self.lines('int64_t size =\n    Size();\nint64_t more = 0;  // bytes\n'))

    def test_finds_literals_that_are_split_without_need(self):
        self.assertEqual([1, 2], self.lines('a("one "\n  "two "\n  "three");\n'))
        self.assertEqual([], self.lines('a("one\\n"\n  "two\\n");\nb("one,"\n  "two");\n'))
        self.assertEqual([], self.lines(f'a("{"word " * 18}"\n  "another");\n'))


if __name__ == '__main__':
    report.main()
