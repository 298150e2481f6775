# SPDX-License-Identifier: Apache-2.0
"""Archives whose bytes follow from names, contents and modes alone: sorted, owned by root, of one time."""
import gzip
import io
import pathlib
import tarfile


def tar(folder, prefix, seconds, owners=None):
    """`owners`: {path in the folder: user's and group's number}, where it is not root."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode='w', format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(pathlib.Path(folder).rglob('*')):
            name = str(path.relative_to(folder))
            entry = archive.gettarinfo(path, arcname=prefix + name)
            # A second name of a file is a file of its own: which of the two came first must not matter.
            if entry.islnk():
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, '', path.stat().st_size
            entry.uid = entry.gid = (owners or {}).get(name, 0)
            entry.uname = entry.gname = ''
            entry.mtime = seconds
            if entry.isfile():
                with path.open('rb') as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return data.getvalue()


def compressed(data):
    return gzip.compress(data, compresslevel=9, mtime=0)
