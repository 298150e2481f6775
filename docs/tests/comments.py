# SPDX-License-Identifier: Apache-2.0
"""Reads the comments of C++, Python and shell sources, and the lines on which string literals of C++ are continued."""
import ast
import io
import re
import tokenize
import typing

# Literals come first, because a // inside of one starts no comment. A number may hold quotes: 1'000.
CPP_TOKEN = re.compile(r'R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|\b\d[\w\']*|/\*.*?\*/|(?P<comment>//[^\n]*)', re.DOTALL)
# The code before the mark has no open quote. A # inside of a word, as in $#, starts no comment.
SHELL_COMMENT = re.compile(r'((?:[^\'"#]|\'[^\']*\'|"[^"]*"|(?<=\S)#)*?)(?<!\S)#(?!!)(.*)')


class Comment(typing.NamedTuple):
    line: int  # number of the first line
    lines: list  # texts without the marks
    is_trailing: bool  # the first line has code too

    def text(self):
        return ' '.join(' '.join(self.lines).split())


def _joined(pieces):
    """The comments of (line, column, is_trailing, text): a line without code continues the comment above it in the same column."""
    comment, expected = None, None
    for line, column, is_trailing, text in pieces:
        if comment and not is_trailing and (line, column) == expected:
            comment.lines.append(text)
        else:
            if comment:
                yield comment
            comment = Comment(line, [text], is_trailing)
        expected = (line + 1, column)
        if text.strip().startswith('SPDX-License-Identifier'):
            comment = None
    if comment:
        yield comment


def _in_cpp(text):
    def pieces():
        for match in CPP_TOKEN.finditer(text):
            if match['comment']:
                start = text.rfind('\n', 0, match.start()) + 1
                before = text[start:match.start()]
                yield text.count('\n', 0, start) + 1, len(before), bool(before.strip()), match['comment'].lstrip('/')
    return _joined(pieces())


def _in_python(text):
    def pieces():
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith('#!'):
                line, column = token.start
                yield line, column, bool(token.line[:column].strip()), token.string.lstrip('#')
    yield from _joined(pieces())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            yield Comment(node.body[0].lineno, node.body[0].value.value.splitlines(), False)


def _in_shell(text):
    def pieces():
        for line, code in enumerate(text.splitlines(), 1):
            match = SHELL_COMMENT.match(code)
            if match:
                yield line, match.start(2), bool(match[1].strip()), match[2]
    return _joined(pieces())


READERS = {'C++': _in_cpp, 'Python': _in_python, 'shell': _in_shell}


def language(name, text):
    """A key of READERS, or None for a file of another kind. Bazel's files are read as Python."""
    if name.endswith(('.cc', '.h')):
        return 'C++'
    interpreter = re.match(r'#!.*\b(python3|bash|sh)\b', text)
    if name.endswith(('.py', '.bazel', '.bzl')) or interpreter and interpreter[1] == 'python3':
        return 'Python'
    return 'shell' if interpreter or name.endswith('.sh') else None


def comments(name, text):
    kind = language(name, text)
    return list(READERS[kind](text)) if kind else []


def split_definitions(text):
    """(line, text before, value) of each definition of C++ whose value is on the second line, with a comment behind it."""
    lines = text.splitlines()
    for number, (line, following) in enumerate(zip(lines, lines[1:]), 1):
        match = re.match(r'\s*([^/"]*;) +//', following)
        if match and line.endswith(' ='):
            yield number, line, match[1]


def split_literals(text):
    """(line, text before, next word) of each literal of C++ that ends in a space and continues on the next line. An indented one is a line of its own."""
    lines = text.splitlines()
    for number, (line, following) in enumerate(zip(lines, lines[1:]), 1):
        match = re.match(r'\s*"((?:[^"\\ ]|\\.)+ ?)', following)
        if match and line.endswith(' "') and '//' not in line:
            yield number, line, match[1]
