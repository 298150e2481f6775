#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of rooms, docs/rooms.md: prints it from a build graph. tools/rooms calls this."""
import pathlib
import re
import sys

import build_graph

# Single targets that more rooms may include than the rest of their room.
PARTS = {
    'collector:node_snapshot': 'the snapshot, plain data',
    'collector/trace:node_trace': 'operations of a window of time, plain data',
    'plugin:options': 'environment variables',
    'proto:shm_layout': 'byte layout of a segment, for its writer and its readers only',
    'simulator/truth:ground_truth_sink': 'what the player reports to the ground truth',
}

HEAD = '''# Rooms

`tools/rooms` writes this table from the build graph. `//tests/rooms` fails in these cases:

- The table differs from the graph.
- Rooms include each other in a circle.
- A target is visible to a room that does not include it.
- A file includes a header that only a dependency's dependency brings.

A room is a folder that is a Bazel package of its own. Its BUILD file begins with its purpose. A row with a colon is a single target that more rooms may include than the rest of its room. The table leaves out tests and what they include. `third_party/` is open to all rooms.

| room | purpose | includes |
|---|---|---|
'''


def purpose_of(build_file):
    """The comment that the text of a BUILD file begins with."""
    lines = re.match(r'(# [^\n]*\n)+', build_file)[0].splitlines()
    return ' '.join(line.removeprefix('# ') for line in lines)


def rooms_of_code(graph):
    """Rooms that more than tests are made of."""
    return sorted({graph.room_of(rule.get('name')) for rule in graph.tree.iter('rule')
                   if rule.get('class').startswith('cc_') and not build_graph.belongs_to_tests(rule)})


def text(graph, purposes):
    rows = []
    for room in rooms_of_code(graph):
        included = ', '.join(f'`{below}`' for below in sorted(graph.includes[room]))
        rows.append(f'| `{room}` | {(PARTS | purposes)[room]} | {included} |\n')
    return HEAD + ''.join(rows)


def main():
    graph = build_graph.BuildGraph(sys.stdin.read(), PARTS)
    folders = [pathlib.Path(package) for package in graph.packages]
    print(text(graph, {str(folder): purpose_of((folder / 'BUILD.bazel').read_text(encoding='utf-8')) for folder in folders}), end='')


if __name__ == '__main__':
    main()
