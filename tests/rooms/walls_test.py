#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The table of rooms in ARCHITECTURE.md is what the build has: no arrow more, none less, and no wall that is open to others."""
import pathlib
import sys
import unittest

sys.path.insert(0, 'deploy/tests')
import build_graph
import report
import table


class Walls(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.rows = table.rows(pathlib.Path('ARCHITECTURE.md').read_text(encoding='utf-8'))
        cls.graph = build_graph.BuildGraph(pathlib.Path('tests/rooms/build_graph.xml').read_text(encoding='utf-8'), cls.rows)

    def test_every_room_has_a_row(self):
        self.assertEqual(sorted(self.rows), sorted(self.graph.packages | {room for room in self.rows if ':' in room}))

    def test_a_row_is_what_its_room_includes(self):
        for room, row in self.rows.items():
            with self.subTest(room):
                built = self.graph.includes[room], self.graph.test_includes[room] - self.graph.includes[room]
                self.assertEqual(table.cells(*row), table.cells(*built))

    def test_code_includes_no_circle_of_rooms(self):
        """Tests may: they play what lies above their room."""
        above, done = [], set()

        def visit(room):
            self.assertNotIn(room, above)
            if room in done:
                return
            above.append(room)
            for below in self.rows[room][0]:
                visit(below)
            done.add(above.pop())

        for room in self.rows:
            visit(room)

    def test_a_room_is_visible_to_those_alone_whose_rows_name_it(self):
        for room in self.rows:
            named_by = {f'//{reader.split(":")[0]}:__pkg__' for reader, row in self.rows.items() if room in row[0] | row[1]}
            with self.subTest(room):
                self.assertEqual(sorted(self.graph.visible_to[room] - named_by), [])


if __name__ == '__main__':
    report.main()
