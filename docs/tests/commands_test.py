#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The commands in the documents can be typed as they stand: shells parse them, and the programs, flags, targets, files and values
of the chart that they name exist."""
import ast
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import unittest

HERE = pathlib.Path(os.path.abspath('docs/tests'))
sys.path.insert(0, str(HERE.parent.parent / 'deploy/tests'))
import report

# Commands name files anywhere, so the test looks at the working tree itself.
ROOT = pathlib.Path(os.path.realpath(HERE / 'commands_test.py')).parent.parent.parent
DAEMON = pathlib.Path('exporter/nccl-exporter').absolute()
SKIPPED = {'third_party', 'node_modules'}

# First words of the lines of a shell block, after variables and sudo. Blocks of other texts begin otherwise.
OF_THE_SYSTEM = {'apt-get', 'cat', 'cd', 'curl', 'dnf', 'docker', 'echo', 'export', 'gcc', 'gzip', 'helm', 'install', 'kubectl', 'ln', 'mkdir', 'mv',
                 'pip', 'python', 'record', 'scancel', 'scontrol', 'setpriv', 'skopeo', 'srun', 'ssh', 'systemctl', 'systemd-sysusers', 'tar',
                 'torchrun', 'useradd'}
OURS = re.compile(r'(?:tools|deploy|bazel-bin)/[\w./-]+|nccl-exporter|bazel')
# Lines of a program that run what a fresh Debian does not have.
NEEDS_PACKAGES = re.compile(r'^#!.*python|^(?!#).*(?:tools/install-dependencies|(?:^|exec |\$\(|then |! )(?:bazel|python3) )', re.MULTILINE)
# Programs of tools/ that need not install what they use: one that others start, and one that draws a file of `nccl-exporter trace`.
STARTED_BY_OTHERS = {'compare-elsewhere', 'trace-picture'}
# A reader replaces these.
PLACEHOLDER = re.compile(r'[A-Z]{3,}|\$|\*')


def documents():
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(('.', 'bazel-'))]
        yield from (pathlib.Path(folder, name) for name in names if name.endswith('.md'))


def words(command):
    """The words of one command, without its comment, variables before it, and sudo."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars='|&;<>()')
    lexer.whitespace_split = True
    try:
        found = list(lexer)
    except ValueError:  # an unclosed quote: no command
        return []
    while found and (re.fullmatch(r'\w+=.*', found[0], re.DOTALL) or found[0] == 'sudo'):
        found.pop(0)
    return found


def is_command(line):
    found = words(line)
    if not found or found[:1] == ['nccl-exporter'] and not re.match('[a-z-]', ''.join(found[1:2])):  # a message begins so
        return False
    return found[0] in OF_THE_SYSTEM or bool(OURS.fullmatch(found[0]))


def blocks(text):
    """Blocks of commands, without the indentation of a list and with each command on one line."""
    for block in re.findall(r'^ *```(?:sh)?\n(.*?)^ *```', text, re.DOTALL | re.MULTILINE):
        indent = re.match(' *', block)[0]
        block = re.sub(f'^{indent}', '', block, flags=re.MULTILINE).replace('\\\n', ' ')
        if any(map(is_command, block.splitlines()[:2])):  # the first line may set variables alone
            yield block


def commands(text):
    """Each command of a document as words: those of blocks, and those in code spans."""
    for block in blocks(text):
        without_files = re.sub(r"<<'?(\w+)'?\n.*?^\1$", '', block, flags=re.DOTALL | re.MULTILINE)
        for line in without_files.splitlines():
            for part in re.split(r'&&|\|\|?|;(?=\s)', line):
                yield words(part)
    spans = re.findall(r'(?<!`)`([^`\n]+)`(?!`)', re.sub(r'^ *```.*?^ *```', '', text, flags=re.DOTALL | re.MULTILINE))
    for span in spans:
        if ' ' in span and is_command(span):
            yield words(span)


@functools.cache
def all_commands():
    """(document, words) of each. Of ssh it is the command on the other machine."""
    every = []
    for path in sorted(documents()):
        for found in commands(path.read_text(encoding='utf-8')):
            if found and found[0] == 'ssh':
                found = words(' '.join(found[2:])) if '-L' not in found else []
            if found:
                every.append((path.relative_to(ROOT), found))
    return every


def flags(found):
    own = found[:found.index('--')] if '--' in found else found
    return [re.match(r'--[\w.-]+', word)[0] for word in own if re.match(r'--[a-z]', word)]


@functools.cache
def help_of(*command):
    return subprocess.run([DAEMON, *command, '--help'], capture_output=True, text=True).stdout


def packaged():
    """Places below /usr of the installed files that are copied from the repository, and of programs."""
    tree = ast.parse((ROOT / 'deploy/release/tree.py').read_text(encoding='utf-8'))
    [copied] = [node.value for node in tree.body if isinstance(node, ast.Assign) and node.targets[0].id == 'COPIED']
    places = {'lib/nccl-exporter/libnccl-profiler-exporter.so', 'lib/nccl-exporter', 'bin/nccl-exporter', 'bin/nccl-exporter/nccl-exporter'}
    for row in copied.elts:
        if isinstance(row.elts[1], ast.Constant):
            place = row.elts[1].value
            places |= {place + file.name if place.endswith('/') else place for file in ROOT.glob(row.elts[0].value)}
    return places | {str(pathlib.Path(place).parent) for place in places}


def chart_has(value):
    """Whether the schema of the chart has a value of this name. Objects without properties take any."""
    schema = json.loads((ROOT / 'deploy/helm/nccl-exporter/values.schema.json').read_text(encoding='utf-8'))
    for name in value.split('.'):
        properties = schema.get('properties')
        if properties is None:
            return schema.get('type', 'object') == 'object'
        names = schema.get('propertyNames', {}).get('enum', properties)
        if name not in names:
            return False
        schema = properties.get(name, {})
    return True


@functools.cache
def text_of_flags(program):
    """A program's source and, where it makes its flags of a table, its help."""
    source = program.read_text(encoding='utf-8')
    started = re.search(r'^exec "\$repository/(\S+)" "\$@"$', source, re.MULTILINE)
    if started:
        return text_of_flags(ROOT / started[1])
    if 'python3' in source.splitlines()[0]:
        source += subprocess.run([program, '--help'], capture_output=True, text=True).stdout
    return source


def takes_flag(program, flag):
    text = text_of_flags(program)
    passes_all = '"$@"' in text or '"${arguments[@]}"' in text
    return passes_all or flag == '--help' or bool(re.search(rf'(?<![\w-]){flag}(?![\w-])', text))


class Commands(unittest.TestCase):
    def check_each(self, check, *names):
        for document, found in all_commands():
            if not names or found[0] in names:
                with self.subTest(f'{document}: {shlex.join(found)}'):
                    check(found)

    def test_are_found(self):
        found = {words[0] for _, words in all_commands()}
        for name in ('tools/release', 'nccl-exporter', 'systemctl', 'helm', 'bazel', 'install', 'srun', 'deploy/prometheus/generate-rules'):
            self.assertIn(name, found)

    def test_are_parsed_by_the_shell(self):
        for path in documents():
            for block in blocks(path.read_text(encoding='utf-8')):
                with self.subTest(f'{path.relative_to(ROOT)}: {block.splitlines()[0]}'):
                    parsed = subprocess.run(['bash', '-n'], input=block, capture_output=True, text=True)
                    self.assertEqual((0, ''), (parsed.returncode, parsed.stderr))

    def test_of_the_daemon_have_commands_and_flags_that_it_has(self):
        names = set(re.findall(r'^  (\w+) ', help_of().split('Subcommands:')[1], re.MULTILINE))
        self.assertIn('inflight', names)

        def check(found):
            own = [word for word in found[1:] if not word.startswith('-')][:2]
            if own:
                self.assertIn(own[0], names)
                parts = help_of(own[0]).partition('Subcommands:')[2]
                if not re.search(rf'^  {re.escape(own[-1])} ', parts, re.MULTILINE):
                    own = own[:1]
            text = help_of() + (help_of(*own) if own else '')
            for flag in flags(found):
                self.assertRegex(text, rf'(?<![\w-]){re.escape(flag)}(?![\w.-])')
        self.check_each(check, 'nccl-exporter', 'bazel-bin/exporter/nccl-exporter')

    def test_of_the_daemon_are_all_in_its_document(self):
        section = (ROOT / 'docs/daemon.md').read_text(encoding='utf-8').split('\n## Commands\n')[1].split('\n### ')[0]
        printed = re.findall(r'^  (\w+) ', help_of().split('Subcommands:')[1], re.MULTILINE)
        self.assertEqual(set(printed), set(re.findall(r'^\| `(\w+)', section, re.MULTILINE)))

    def test_of_the_repository_exist_with_their_flags(self):
        def check(found):
            if re.match(r'(tools|deploy)/', found[0]):
                program = ROOT / found[0]
                self.assertTrue(program.is_file() and os.access(program, os.X_OK), 'no such program')
                self.assertEqual([], [flag for flag in flags(found) if not takes_flag(program, flag)])
        self.check_each(check)

    def test_of_the_repository_install_what_they_need_and_start_without_it(self):
        """A fresh Debian has bash, and neither Python nor Bazel."""
        sources = {program: program.read_text(encoding='utf-8') for program in (ROOT / 'tools').iterdir() if program.name not in STARTED_BY_OTHERS}
        needing = {program for program, source in sources.items() if NEEDS_PACKAGES.search(source)}
        self.assertLessEqual({ROOT / 'tools/release', ROOT / 'tools/bench', ROOT / 'tools/rules-scale'}, needing)
        for program in needing:
            with self.subTest(program.name):
                self.assertEqual('#!/usr/bin/env bash', sources[program].splitlines()[0])
                self.assertRegex(sources[program], r'(?m)^(?!#).*tools/(install-dependencies|aarch64-root)')

    def test_name_targets_that_exist(self):
        def check(found):
            for label in (word for word in found if word.startswith('//')):
                package, _, name = label[2:].partition(':')
                build = ROOT / package / 'BUILD.bazel'
                self.assertTrue(build.exists(), 'no such package')
                self.assertIn(f'"{name or pathlib.Path(package).name}"', build.read_text(encoding='utf-8'))
        self.check_each(check, 'bazel')

    def test_name_files_of_the_repository_that_exist(self):
        def check(found):
            for word in found[1:]:
                path = word.removeprefix('../').rstrip('/')
                if re.match(r'(tools|deploy|docs|tests|proto|exporter|plugin|simulator|collector)/', path):
                    self.assertTrue(list(ROOT.glob(path)), f'no file {word}')
        self.check_each(check)

    def test_name_files_of_the_package_that_exist(self):
        places = packaged()
        self.assertIn('share/nccl-exporter/slurm/epilog', places)

        def check(found):
            for place in re.findall(r'/usr/((?:share|lib|libexec|bin)/nccl-exporter[\w./*-]*)', ' '.join(found)):
                if not PLACEHOLDER.search(place):
                    self.assertTrue(place.rstrip('./') in places or place.endswith('/.new'), f'no file /usr/{place}')
        self.check_each(check)

    def test_set_values_that_the_chart_has(self):
        for path in documents():
            for settings in re.findall(r'--set (\w[\w.]*=[^\s`]*)', path.read_text(encoding='utf-8')):
                for setting in settings.split(','):
                    with self.subTest(f'{path.relative_to(ROOT)}: {setting}'):
                        self.assertTrue(chart_has(setting.split('=')[0]))

    def test_of_systemd_are_ones_that_the_unit_takes(self):
        unit = (ROOT / 'deploy/systemd/nccl-exporter.service').read_text(encoding='utf-8')
        needs = {'reload': 'ExecReload=', 'enable': 'WantedBy='}

        def check(found):
            if found[1] in needs and found[2:] in ([], ['nccl-exporter']):
                self.assertIn(needs[found[1]], unit)
        self.check_each(check, 'systemctl')


class Reading(unittest.TestCase):
    """The test finds commands, and takes nothing else for one."""

    def test_finds_those_of_blocks_and_spans(self):
        text = 'Run `nccl-exporter top --once`:\n\n```\nA=1 tools/x --y \\\n  z   # why\ncd a && sudo ssh n nccl-exporter top f\n```\n'
        self.assertEqual([['tools/x', '--y', 'z'], ['cd', 'a'], ['ssh', 'n', 'nccl-exporter', 'top', 'f'], ['nccl-exporter', 'top', '--once']],
                         list(commands(text)))

    def test_leaves_out_other_blocks_and_files(self):
        self.assertEqual([], list(commands('```\nscrape_configs:\n  - job_name: x\n```\n```promql\nsum(x)\n```\n')))
        self.assertEqual([['cat', '>', 'x'], ['ls']], list(commands("```\ncat >x <<'END'\nresources: [a\nEND\nls\n```\n")))
        self.assertEqual([['cd', 'x-$A']], list(filter(None, commands('```\nA=1\ncd x-$A\n```\n'))))
        self.assertEqual([], list(commands('`nccl-exporter 0.1.0 listens at :9828`')))

    def test_knows_the_values_of_the_chart(self):
        self.assertEqual([True, True, False, False], list(map(chart_has, ('image.tag', 'seLinuxOptions.type', 'image.tags', 'nothing'))))

    def test_reads_flags_up_to_two_dashes(self):
        self.assertEqual(['--a', '--b.c'], flags(['x', '--a', '--b.c=1', '--', '--d']))


if __name__ == '__main__':
    report.main()
