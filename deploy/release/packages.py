# SPDX-License-Identifier: Apache-2.0
"""Debian's and RPM's package of a tree below /usr. Both depend on nothing but what makes their user."""
import gzip
import hashlib
import os
import pathlib
import shutil
import subprocess
import time
from email import utils

DEBIAN = pathlib.Path('deploy/debian')
SPEC = pathlib.Path('deploy/release/nccl-exporter.spec.in')


def set_times(root, seconds):
    for path in [root, *root.rglob('*')]:
        os.utime(path, (seconds, seconds), follow_symlinks=False)


def put_defaults(root):
    target = root / 'etc/default/nccl-exporter'
    target.parent.mkdir(parents=True)
    shutil.copyfile('deploy/systemd/nccl-exporter.default', target)


def filled(text, **values):
    for name, value in values.items():
        text = text.replace(f'@{name.upper()}@', str(value))
    return text


def deb(tree, version, architecture, seconds, output):
    root = tree.parent / 'deb'
    shutil.copytree(tree, root / 'usr', symlinks=True)
    put_defaults(root)
    control = (DEBIAN / 'control.in').read_text(encoding='utf-8')
    maintainer = next(line.removeprefix('Maintainer: ') for line in control.splitlines() if line.startswith('Maintainer: '))
    # Debian's own form of a changelog, with nothing to say that ours does not.
    changelog = (f'nccl-exporter ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n'
                 f' -- {maintainer}  {utils.formatdate(seconds)}\n')
    (root / 'usr/share/doc/nccl-exporter/changelog.gz').write_bytes(gzip.compress(changelog.encode(), 9, mtime=0))
    overrides = root / 'usr/share/lintian/overrides/nccl-exporter'
    overrides.parent.mkdir(parents=True)
    shutil.copyfile(DEBIAN / 'lintian-overrides', overrides)
    files = sorted(str(path.relative_to(root)) for path in root.rglob('*') if path.is_file() and not path.is_symlink())
    size = sum((root / file).stat().st_size for file in files) // 1024
    (root / 'DEBIAN').mkdir()
    (root / 'DEBIAN/control').write_text(filled(control, version=version, architecture=architecture.debian, size=size), encoding='utf-8')
    (root / 'DEBIAN/conffiles').write_text('/etc/default/nccl-exporter\n')
    (root / 'DEBIAN/md5sums').write_text(''.join(
        f'{hashlib.md5((root / file).read_bytes()).hexdigest()}  {file}\n' for file in files if not file.startswith('etc/')))
    for name in ('postinst', 'prerm', 'postrm'):
        shutil.copy(DEBIAN / name, root / 'DEBIAN' / name)
        (root / 'DEBIAN' / name).chmod(0o755)
    set_times(root, seconds)
    # xz, which every dpkg reads; by one thread, since the number of threads changes the bytes.
    subprocess.run(['dpkg-deb', '--root-owner-group', '--threads-max=1', '-Zxz', '--build', root,
                    output / f'nccl-exporter_{version}_{architecture.debian}.deb'],
                   check=True, stdout=subprocess.DEVNULL, env={**os.environ, 'SOURCE_DATE_EPOCH': str(seconds)})


def rpm_files(root):
    """The lines of %files: each file, and the folders that are ours alone."""
    lines = []
    for path in sorted(root.rglob('*')):
        name = '/' + str(path.relative_to(root)).replace('\\', '?')  # a pattern, in which a backslash has a meaning
        if path.is_symlink() or path.is_file():
            kind = '%config(noreplace) ' if name.startswith('/etc/') else ''
            lines.append(f'{kind}"{name}"')
        elif 'nccl-exporter' in name:
            lines.append(f'%dir "{name}"')
    return '\n'.join(lines)


def license_of_all(licenses):
    return ' AND '.join(f'({name})' if ' OR ' in name else name for name in sorted(licenses))


def rpm(tree, version, licenses, architecture, seconds, output):
    folder = tree.parent / 'rpm'
    root = folder / 'files'
    shutil.copytree(tree, root / 'usr', symlinks=True)
    put_defaults(root)
    set_times(root, seconds)
    spec = folder / 'nccl-exporter.spec'
    spec.write_text(filled(SPEC.read_text(encoding='utf-8'), version=version, licenses=license_of_all(licenses), root=root,
                           date=time.strftime('%a %b %d %Y', time.gmtime(seconds)), files=rpm_files(root)), encoding='utf-8')
    defines = {
        '_topdir': folder, '_rpmdir': output, '_rpmfilename': '%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm', '_buildhost': 'nccl-exporter',
        'use_source_date_epoch_as_buildtime': 1, 'clamp_mtime_to_source_date_epoch': 1, 'source_date_epoch_from_changelog': 0,
        '_binary_payload': 'w9.xzdio',      # RPM 4.14 of RHEL 8 reads it
        '_build_id_links': 'none', 'debug_package': '%{nil}',
        '__os_install_post': '%{nil}',      # stripped already; Debian's own libraries stay as they are
    }
    options = [word for name, value in defines.items() for word in ('--define', f'{name} {value}')]
    subprocess.run(['rpmbuild', '-bb', '--quiet', '--target', f'{architecture.name}-linux', *options, spec],
                   check=True, env={**os.environ, 'SOURCE_DATE_EPOCH': str(seconds)})
