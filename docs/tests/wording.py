#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Finds phrases that are hard to read in Markdown documents and in comments of sources. Usage: wording.py FILE..."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import comments
import markdown

LONGEST_SENTENCE = 30  # words: a reader whose first language is another one loses the subject of longer ones

# Words that we do not write, and their replacements.
AVOIDED = {
    r'tell|tells|told|telling': 'report, say, show, detect, distinguish',
    r'dear': 'expensive',
    r'anew': 'again',
    r'stands? in|stood in|standing in|stand-ins?': 'replace, replacement',
    r'nobody to name': 'no fault',
    r'none of it': 'nothing',
    r'whoever': 'the one that',
    r'for want of': 'because there is no',
    r'foremost': 'highest',
    r'companions?': 'member of the same launch',
    r'for ever': 'forever',
    r'somebody|someone': 'a rank, a user, another program',
}
AVOIDED_RE = re.compile(r'\b(?:' + '|'.join(f'({pattern})' for pattern in AVOIDED) + r')\b', re.IGNORECASE)
RELATIVE_START = re.compile(r'(?:Who|What|Whoever|Where)\b')

# A comment is read alone: in a tooltip, a diff, a search. One that begins like this leaves out its subject.
WITHOUT_SUBJECT = re.compile(r'(?:(?:The )?same|(?:As|See|Like) above|Of|And|But|What|Who|How|Which)\b', re.IGNORECASE)
# The subject of a comment behind code is that code: "int size;  // of the header".
CONTINUES_CODE = re.compile(r'(?:of|and|but)\b')

COLUMNS = 100  # as in .clang-format
# The formatter cuts a line that is too long, and leaves the rest alone on the next one. A line that ends earlier by choice is no such scar.
LEAST_ROOM = 10  # columns that are still free after the next line's first word
ITEM = re.compile(r'\s*(?:[-*|+] |\d+\. )')


def _avoided_words(sentence):
    for match in AVOIDED_RE.finditer(sentence):
        instead = list(AVOIDED.values())[match.lastindex - 1]
        yield f'"{match.group()}", write {instead}: {sentence}'


def findings(text):
    """(line, what is wrong) of each finding in a document."""
    for number in markdown.wrapped_lines(text):
        yield number, 'a paragraph is one line'
    for number, kind, block in markdown.prose(text):
        for sentence in markdown.sentences(block):
            words = sum(any(letter.isalnum() for letter in word) for word in sentence.split())
            if words > LONGEST_SENTENCE:
                yield number, f'{words} words in a sentence: {sentence}'
            if kind in ('paragraph', 'item') and RELATIVE_START.match(sentence) and not sentence.rstrip(')*').endswith('?'):
                yield number, f'begins with {sentence.split()[0]}: {sentence}'
            yield from ((number, finding) for finding in _avoided_words(sentence))


def _indent(line):
    return len(line) - len(line.lstrip())


def _continues(text, following):
    """Whether a line of a comment continues the one before in the same column, and none of them is part of a table or picture."""
    if ITEM.match(following) or re.search(r'\S {2,}\S|--|\|', f'{text.strip()}\n{following.strip()}'):
        return False
    item = ITEM.match(text)
    return _indent(following) == (len(item[0]) if item else _indent(text))


def _broken_lines(comment, source_lines):
    """(line, finding) of each line of a comment that the formatter has cut."""
    for index, (text, following) in enumerate(zip(comment.lines, comment.lines[1:])):
        if not text.strip() or not following.strip():
            continue
        number = comment.line + index
        next_word = following.split()[0]
        has_room = len(source_lines[number - 1]) + 1 + len(next_word) + LEAST_ROOM <= COLUMNS
        ends_sentence = re.search(r'[.:;?!]["\')*]*$', text)
        is_paragraph_end = ITEM.match(following) or _indent(following) < _indent(text)
        if index > 0 and re.fullmatch(r'\s*\S*\w\S*\s*', text) and not is_paragraph_end:
            yield number, f'a line of one word, "{text.strip()}"'
        elif has_room and not ends_sentence and _continues(text, following):
            yield number, f'"{next_word}" fits on the line before it'


def source_findings(name, text):
    """(line, what is wrong) of each finding in the comments of a source, and in C++ in its string literals."""
    lines = text.splitlines()
    is_cpp = comments.language(name, text) == 'C++'
    for comment in comments.comments(name, text):
        words = comment.text()
        match = WITHOUT_SUBJECT.match(words)
        if match and not words.endswith('?') and not (comment.is_trailing and CONTINUES_CODE.match(words)):
            yield comment.line, f'begins with {match.group()}: {words}'
        for sentence in markdown.sentences(words):
            yield from ((comment.line, finding) for finding in _avoided_words(sentence))
        if is_cpp:
            yield from _broken_lines(comment, lines)
    if not is_cpp:
        return
    for number, before, value in comments.split_definitions(text):
        if len(before) + 1 + len(value) <= COLUMNS:
            yield number, f'the comment behind "{value}" splits the definition: write it above'
    for number, before, next_word in comments.split_literals(text):
        if len(before) + len(next_word) + LEAST_ROOM <= COLUMNS:
            yield number, f'"{next_word.strip()}" fits into the literal before it'


def findings_of_file(name):
    text = pathlib.Path(name).read_text(encoding='utf-8')
    return findings(text) if name.endswith('.md') else source_findings(name, text)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = [f'{name}:{number}: {finding}' for name in sys.argv[1:] for number, finding in findings_of_file(name)]
    print('\n'.join(found))
    sys.exit(bool(found))


if __name__ == '__main__':
    main()
