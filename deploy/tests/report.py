# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of a Python program and reports each to Bazel by name, skipped ones with their reason."""
import os
import sys
import unittest
from xml.sax import saxutils


class Result(unittest.TextTestResult):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.passed = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed.append(test)


def junit(result):
    def case(test, inside=''):
        return f'<testcase name={saxutils.quoteattr(test.id())}>{inside}</testcase>'
    cases = [case(test) for test in result.passed]
    cases += [case(test, f'<skipped message={saxutils.quoteattr(reason)}/>') for test, reason in result.skipped]
    cases += [case(test, f'<failure>{saxutils.escape(text)}</failure>') for test, text in result.failures + result.errors]
    broken = len(result.failures) + len(result.errors)
    return (f'<testsuites><testsuite name="python" tests="{len(cases)}" failures="{broken}" errors="0" '
            f'skipped="{len(result.skipped)}">{"".join(cases)}</testsuite></testsuites>\n')


def main():
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules['__main__'])
    result = unittest.TextTestRunner(verbosity=2, resultclass=Result).run(suite)
    if path := os.environ.get('XML_OUTPUT_FILE'):
        with open(path, 'w', encoding='utf-8') as file:
            file.write(junit(result))
    sys.exit(not result.wasSuccessful())
