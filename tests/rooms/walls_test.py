#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""No circle of rooms, and no wall that is open to others than those who use it."""
import pathlib
import sys
import unittest

sys.path.insert(0, 'deploy/tests')
import build_graph
import report
import table


class Walls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.graph = build_graph.BuildGraph(pathlib.Path('tests/rooms/build_graph.xml').read_text(encoding='utf-8'), table.PARTS)
        cls.rooms = cls.graph.packages | set(table.PARTS)

    def test_every_part_is_a_target(self):
        self.assertEqual({f'//{part}' for part in table.PARTS} - self.graph.rules, set())

    def test_code_includes_no_circle_of_rooms(self):
        """Tests may: they play what lies above their room."""
        above, done = [], set()

        def visit(room):
            self.assertNotIn(room, above)
            if room in done:
                return
            above.append(room)
            for below in self.graph.includes[room]:
                visit(below)
            done.add(above.pop())

        for room in self.rooms:
            visit(room)

    def test_a_room_is_visible_to_those_alone_that_include_it(self):
        for room in self.rooms:
            users = {f'//{user.split(":")[0]}:__pkg__' for user in self.rooms
                     if room in self.graph.includes[user] | self.graph.test_includes[user]}
            with self.subTest(room):
                self.assertEqual(sorted(self.graph.visible_to[room] - users), [])


if __name__ == '__main__':
    report.main()
