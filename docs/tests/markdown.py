# SPDX-License-Identifier: Apache-2.0
"""Reads a Markdown document: its prose with line numbers, its links, and the anchors of its headings."""
import re

# Tables whose texts are the programs' own help texts. Tests compare them with the code.
FROM_THE_CODE = (
    '| metric | type | labels | meaning |',
    '| `reason` | counter | meaning |',
    '| flag | default | meaning |',
    '| variable | default | meaning |',
    '| label | what is one series without it | shipped rules |',
)
START_OF_ITEM = re.compile(r'^\s*(?:[-*]|\d+\.)\s+')


def _lines_of_text(text):
    """(number, line) of every line that is not in a fenced block."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith('```'):
            is_fenced = not is_fenced
            yield number, ''
        elif not is_fenced:
            yield number, line


def _without_code(line):
    return re.sub(r'(`+).+?\1', 'Code', line)


def prose(text):
    """(number, kind, text) of each paragraph, list item, heading and table cell; `kind` is the name of one of these."""
    in_table, skips_table, open_paragraph = False, False, None
    for number, line in _lines_of_text(text):
        is_row = line.lstrip().startswith('|')
        if is_row and not in_table:
            in_table, skips_table = True, line.strip() in FROM_THE_CODE
            is_row = False
        if not line.lstrip().startswith('|'):
            in_table = False
        starts_block = not line.strip() or in_table or line.startswith('#') or START_OF_ITEM.match(line)
        if open_paragraph and starts_block:
            yield open_paragraph
            open_paragraph = None
        if in_table:
            if is_row and not skips_table and not re.fullmatch(r'[\s|:-]+', line):
                yield from ((number, 'cell', cell.strip()) for cell in _without_code(line).strip().strip('|').split('|'))
        elif line.startswith('#'):
            yield number, 'heading', line.lstrip('#').strip()
        elif line.strip():
            kind = 'item' if START_OF_ITEM.match(line) else 'paragraph'
            words = _without_code(START_OF_ITEM.sub('', line, count=1).strip())
            open_paragraph = (open_paragraph[0], open_paragraph[1], f'{open_paragraph[2]} {words}') if open_paragraph else (number, kind, words)
    if open_paragraph:
        yield open_paragraph


def sentences(text):
    """The sentences of a paragraph, without marks of links and emphasis."""
    text = re.sub(r'!?\[([^\]]*)\]\([^)]*\)', r'\1', text)
    text = re.sub(r'\*\*|(?<!\w)[*_]|[*_](?!\w)', '', text)
    return [sentence for sentence in re.split(r'(?<=[.!?])[")]*\s+(?=["(]*[A-Z0-9])', text) if sentence.strip()]


def wrapped_lines(text):
    """Numbers of lines that go on with the paragraph of the line before."""
    before = ''
    for number, line in _lines_of_text(text):
        is_prose = bool(line.strip()) and not line.lstrip().startswith('|') and not line.startswith('#')
        if is_prose and before and not START_OF_ITEM.match(line):
            yield number
        before = line.strip() if is_prose else ''


def links(text):
    """(number, target) of each link and image."""
    for number, line in _lines_of_text(text):
        for target in re.findall(r'\]\(([^)\s]+)\)', re.sub(r'(`+)[^`]*?\1', '', line)):
            yield number, target


def anchors(text):
    """The names by which links reach the headings, as GitHub makes them."""
    seen = {}
    for _, line in _lines_of_text(text):
        if line.startswith('#'):
            title = re.sub(r'!?\[([^\]]*)\]\([^)]*\)', r'\1', line.lstrip('#').strip()).lower()
            name = re.sub(r'[^\w\- ]', '', title).replace(' ', '-')
            seen[name] = seen.get(name, -1) + 1
            yield f'{name}-{seen[name]}' if seen[name] else name
