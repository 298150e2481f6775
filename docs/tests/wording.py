#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Finds what is hard to read in Markdown documents. Usage: wording.py FILE..."""
import pathlib
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import markdown

LONGEST_SENTENCE = 30  # words: a reader whose first language is another one loses the subject of longer ones

# What we do not write, and what we write instead.
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
            for match in AVOIDED_RE.finditer(sentence):
                instead = list(AVOIDED.values())[match.lastindex - 1]
                yield number, f'"{match.group()}", write {instead}: {sentence}'


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    found = [f'{name}:{number}: {finding}' for name in sys.argv[1:]
             for number, finding in findings(pathlib.Path(name).read_text(encoding='utf-8'))]
    print('\n'.join(found))
    sys.exit(bool(found))


if __name__ == '__main__':
    main()
