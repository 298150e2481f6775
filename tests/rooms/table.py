# SPDX-License-Identifier: Apache-2.0
"""The table of rooms in ARCHITECTURE.md."""
import re

ROW = re.compile(r'^\| `([a-z_/:-]+)` \| [^|]+ \| ([^|]*) \| ([^|]*) \|$', re.M)


def rows(document):
    """room: (rooms that its code includes, further ones that its tests include)"""
    return {room: tuple(set(re.findall(r'`([^`]+)`', cell)) for cell in cells) for room, *cells in ROW.findall(document)}


def cells(*rooms):
    return ' | '.join(', '.join(f'`{room}`' for room in sorted(cell)) for cell in rooms)
