#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""docs/troubleshooting.md quotes and explains what plugin, daemon and doctor print: each message in the sources is in a code span
or block of the page, or below with the reason why it is not."""
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(os.path.abspath('docs/tests'))
sys.path.insert(0, str(HERE.parent.parent / 'deploy/tests'))
import report

# Any source may log, so that the test looks at the working tree itself.
ROOT = pathlib.Path(os.path.realpath(HERE / 'messages_test.py')).parent.parent.parent
PAGE = 'docs/troubleshooting.md'
DAEMON = pathlib.Path('exporter/nccl-exporter').absolute()

# Per program: files, and what opens a statement whose text a person reads.
SOURCES = {
    'the plugin': [(('plugin/*.cc', 'plugin/*/*.cc'), (r'\binfo\(', r'\bwarn\(', r'\bFail\(', r'\bsnprintf\(error_,'))],
    'the daemon': [(('exporter/*.cc', 'exporter/*/*.cc', 'exporter/*/*/*.cc', 'exporter/http/last_usable.h', 'collector/*.cc', 'collector/*/*.cc'),
                    (r'\bspdlog::\w+\(', r'\bFail\(kRuntimeFailure,', r'\bruntime_error\(')),
                   (('exporter/ledger/state_log.h',), (r'\blines\.push_back\(',)),
                   (('exporter/http/listening_sockets.cc',), (r'\breturn(?= "[^"]* )',))],
    'doctor': [(('exporter/cli/doctor/*.cc',), (r'\.(?:Holds|Warns|Fails)\(', r'\bdetail \+?=', r'\.detail =', r'\bfault =', r'\breturn(?= "[^"]* )'))],
}

# Texts that the page does not quote, and why.
NOT_QUOTED = {
    'scraped bytes in': 'of --log.level=debug, for developers',
    'ISA-L does not compress': 'a fault of the library, shown as the reason of a message that is quoted',
    'zlib does not compress': 'the same',
}


def literals(statement):
    """The texts of a statement, adjacent literals joined."""
    return [''.join(re.findall(r'"((?:[^"\\]|\\.)*)"', group)).replace('\\"', '"').replace('\\n', ' ')
            for group in re.findall(r'(?:"(?:[^"\\]|\\.)*"\s*)+', statement)]


def words_of(text):
    """The constant parts of a format: the pieces between its placeholders."""
    pieces = re.split(r'%[0-9.]*l*[sdux]|\{[^{}]*\}', text)
    return [piece.strip(' ,:;()') for piece in pieces if re.search('[A-Za-z]{2}', piece)]


def statement_at(text, start):
    """From `start` to the semicolon that ends the statement, outside of literals."""
    end = re.compile(r'(?:[^";]|"(?:[^"\\]|\\.)*")*;').match(text, start)
    return text[start:end.end()] if end else text[start:]


def argument_at(text, start):
    """From `start`, behind the parenthesis of a call, to the end of its first argument."""
    depth = 0
    for token in re.compile(r'"(?:[^"\\]|\\.)*"|[(){}\[\],]').finditer(text, start):
        if depth == 0 and token[0] in ',)':
            return text[start:token.start()]
        depth += (token[0] in '({[') - (token[0] in ')}]')
    return text[start:]


def texts(statement):
    """The text that a statement prints. A format without words takes them from its arguments."""
    found = [words_of(literal) for literal in literals(statement)]
    return found[:1] if found and found[0] else [words for words in found if words]


def messages(program):
    """(file, pieces) of each message in the sources of a program."""
    seen = set()
    for patterns, openings in SOURCES[program]:
        for path in sorted({path for pattern in patterns for path in ROOT.glob(pattern)}):
            if path.name.endswith('_test.cc') or 'fuzz' in path.name or path.parent.name == 'testing':
                continue
            source = path.read_text(encoding='utf-8')
            for opening in re.finditer('|'.join(openings), source):
                read = argument_at if re.match(r'\.\w+\(', opening[0]) else statement_at
                for pieces in texts(read(source, opening.end())):
                    if ' '.join(pieces) not in seen:
                        seen.add(' '.join(pieces))
                        yield path.relative_to(ROOT), pieces


def quotes(text):
    """Code spans and blocks of a page."""
    blocks = re.findall(r'^```\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    rest = re.sub(r'^```\n.*?^```', '', text, flags=re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()] + re.findall(r'`([^`\n]+)`', rest)


def is_quoted(pieces, quoted):
    pattern = re.compile('.*'.join(map(re.escape, pieces)))
    return any(pattern.search(quote) for quote in quoted)


class Messages(unittest.TestCase):
    def setUp(self):
        self.quoted = quotes((ROOT / PAGE).read_text(encoding='utf-8'))

    def test_are_quoted_or_left_out_for_a_reason(self):
        for program in SOURCES:
            for path, pieces in messages(program):
                with self.subTest(f'{program}: {path}'):
                    self.assertTrue(is_quoted(pieces, self.quoted) or ' '.join(pieces) in NOT_QUOTED, f'{PAGE} should explain: {pieces}')

    def test_exceptions_are_messages_and_are_not_quoted(self):
        known = {' '.join(pieces): pieces for program in SOURCES for _, pieces in messages(program)}
        for text, reason in NOT_QUOTED.items():
            with self.subTest(text):
                self.assertTrue(reason)
                self.assertTrue(text in known, 'no source has it any more')
                self.assertFalse(is_quoted(known[text], self.quoted), 'it is quoted, so it is no exception')

    def test_of_a_start_and_its_end_are_quoted_as_the_daemon_prints_them(self):
        def shape(text):  # without IPv6 every address is 0.0.0.0
            return re.sub(r'\d+', '0', text.replace('0.0.0.0', '[::]'))
        with tempfile.TemporaryDirectory() as folder:
            daemon = subprocess.Popen([DAEMON, '--web.listen-address=:0', '--web.health-address=:0', f'--segment.dir={folder}'],
                                      stderr=subprocess.PIPE, text=True)
            with daemon:
                printed = ''
                for line in daemon.stderr:
                    printed += line
                    if 'watching' in line:
                        daemon.send_signal(signal.SIGHUP)
                    if 'SIGHUP' in line:
                        daemon.terminate()
        found = [message.replace(folder, 'PATH') for message in re.findall(r'msg="(.*)"', printed)]
        self.assertEqual(['nccl-exporter', 'probes', 'watching', 'SIGHUP', 'stopping'], [re.match('[a-zA-Z-]+', message)[0] for message in found])
        for message in found:
            with self.subTest(message):
                # The page has it whole, perhaps with an end that this start lacks.
                self.assertTrue(any(shape(quote).startswith(shape(message)) for quote in self.quoted), f'{PAGE} shows another text')


class Reading(unittest.TestCase):
    """The test finds the ways in which programs print."""

    def test_finds_messages_of_each_program(self):
        for program, known in (('the plugin', ['nccl-exporter: no metrics from this process']), ('the plugin', ['cannot open segment directory']),
                               ('the daemon', ['keeping the previous']), ('the daemon', ['cannot listen at']),
                               ('doctor', ['it is no ELF file'])):
            with self.subTest(known):
                self.assertIn(known, [pieces for _, pieces in messages(program)])

    def test_joins_literals_and_drops_placeholders(self):
        self.assertEqual(['a b', 'c'], literals('"a "\n    "b", x, "c"'))
        self.assertEqual(['value of', 'not understood'], words_of('value of %s not understood: %u'))
        self.assertEqual(['segments', 'live'], words_of('segments: {} live ({:.1f})'))
        self.assertEqual([['watching'], ['waiting']], texts('"{} {}", is_there ? "watching" : "waiting", path);'))

    def test_reads_the_first_argument_of_a_check(self):
        self.assertEqual('format("a, {}) b", f(x))', argument_at('.Fails(format("a, {}) b", f(x)), "cure");', 7))
        self.assertEqual('"a"', argument_at('.Holds("a");', 7))

    def test_a_message_that_is_new_is_not_quoted(self):
        self.assertFalse(is_quoted(['unheard', 'of'], quotes('`heard of`\n```\nof unheard\n```\n')))
        self.assertTrue(is_quoted(['heard', 'of'], quotes('`heard by x of`\n')))


if __name__ == '__main__':
    report.main()
