#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The plugin passes all that the event policy decides by. Tests of the policy set its input themselves, and one for machines without a
compare-exchange instruction changes nothing on those that build the project."""
import pathlib
import re
import sys
import unittest

sys.path.insert(0, str(pathlib.Path('deploy/tests').resolve()))
import report

POLICY = pathlib.Path('plugin/nccl/event_policy.h').read_text(encoding='utf-8')
CALL = re.search(r'DecideEvents\(\s*\{(.*?)\}\);', pathlib.Path('plugin/process.cc').read_text(encoding='utf-8'), re.S)[1]
MEMBERS = re.findall(r'^  [\w:]+ (\w+) = ', re.search(r'^struct PolicyInput \{\n(.*?)^\};', POLICY, re.S | re.M)[1], re.M)


class PolicyInput(unittest.TestCase):
    def test_every_member_is_passed(self):
        self.assertGreater(len(MEMBERS), 8)
        self.assertEqual(re.findall(r'\.(\w+) = ', CALL), MEMBERS)

    def test_a_weak_exchange_may_fail_on_all_machines_but_x86(self):
        self.assertIn('.weak_exchange_may_fail = kWeakExchangeMayFail,', CALL)
        by_machine = re.search(r'^#if defined\(__x86_64__\)\n(.*)\n#else\n(.*)\n#endif', POLICY, re.M)
        self.assertEqual([line.removeprefix('inline constexpr bool ') for line in by_machine.groups()],
                         ['kWeakExchangeMayFail = false;', 'kWeakExchangeMayFail = true;'])


if __name__ == '__main__':
    report.main()
