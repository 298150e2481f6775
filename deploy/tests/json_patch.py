# SPDX-License-Identifier: Apache-2.0
"""JSON patches that add, as policies use them."""


def apply(thing, patches, makes_lists=False):
    """Changes `thing`. Adds to lists, and sets fields. makes_lists: those that are not there are made, as Kyverno makes them."""
    for patch in patches:
        assert patch['op'] == 'add', patch
        *path, place = patch['path'].removeprefix('/').split('/')
        target = thing
        for step, following in zip(path, [*path[1:], place]):
            if isinstance(target, list):
                target = target[int(step)]
            else:
                if makes_lists:
                    target.setdefault(step, [] if following.isdigit() or following == '-' else {})
                target = target[step]
        if isinstance(target, list):
            target.insert(len(target) if place == '-' else int(place), patch['value'])
        else:
            target[place] = patch['value']
