# SPDX-License-Identifier: Apache-2.0
"""The build graph as arrows between rooms, from what `bazel query --output=xml` prints."""
import re
from collections import defaultdict
from xml.etree import ElementTree

# Open to every room: system libraries, and the documents beside README.md.
OPEN = ('third_party', '')
# A room exports this file so that the query finds the room.
FOR_THIS_TEST = ':BUILD.bazel'


def package_of(label):
    """The folder of a target of this repository; None for a label of another one."""
    found = re.match(r'//([^:]*):', label)
    return found and found[1]


def belongs_to_tests(rule):
    return rule.get('class').endswith('_test') or rule.find("boolean[@name='testonly'][@value='true']") is not None


class BuildGraph:
    """`rooms` are packages, or single targets of a package: what others may see of a part whose rest they may not."""

    def __init__(self, xml, rooms):
        self.rooms = set(rooms)
        # ElementTree reads XML 1.0 only; nothing in a BUILD file makes a difference between the two.
        self.tree = ElementTree.fromstring(xml.replace('<?xml version="1.1"', '<?xml version="1.0"', 1))
        self.rules = {rule.get('name') for rule in self.tree.iter('rule')}
        self.includes, self.test_includes, self.visible_to = defaultdict(set), defaultdict(set), defaultdict(set)
        for element in self.tree:
            label = element.get('name')
            if element.tag == 'rule':
                self._add_inputs(element, label)
                self._add_visibility(label, element.findall("list[@name='visibility']/label"), 'value')
            elif element.tag == 'source-file':
                self._add_visibility(label, element.findall('visibility-label'), 'name')

    def room_of(self, label):
        target = label.removeprefix('//')
        return target if target in self.rooms else package_of(label)

    def _add_inputs(self, rule, label):
        includes = self.test_includes if belongs_to_tests(rule) else self.includes
        for element in rule.findall('rule-input'):
            given, package = element.get('name'), package_of(element.get('name'))
            is_own_file = package == package_of(label) and given not in self.rules
            if package is None or package in OPEN or is_own_file or given.endswith(FOR_THIS_TEST):
                continue
            if self.room_of(given) != self.room_of(label):
                includes[self.room_of(label)].add(self.room_of(given))

    def _add_visibility(self, label, visibility, attribute):
        package = package_of(label)
        if label.endswith(FOR_THIS_TEST):
            return
        for reader in (element.get(attribute) for element in visibility):
            if reader not in ('//visibility:private', f'//{package}:__pkg__'):
                self.visible_to[self.room_of(label)].add(reader)

    def files(self):
        """file: (the room that it is compiled in, whether tests alone are made of it)"""
        files = {}
        for rule in self.tree.iter('rule'):
            for label in rule.findall("list[@name='srcs']/label") + rule.findall("list[@name='hdrs']/label"):
                path = label.get('value').removeprefix('//').replace(':', '/')
                room, is_for_tests = files.get(path, (self.room_of(rule.get('name')), True))
                files[path] = (room, is_for_tests and belongs_to_tests(rule))
        return files

    @property
    def packages(self):
        return {package_of(rule) for rule in self.rules}
