#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a release: archive, .deb, .rpm, bill of materials and GPU kit for each architecture, an image of all, and checksums.

Two runs at one commit, with the same Debian packages, give the same bytes. Bazel's startup and build options are taken from
BAZEL_STARTUP and BAZEL_BUILD. tools/release installs what this needs, and starts it."""
import argparse
import hashlib
import os
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import archive
import architectures
import carried
import gpu_kit
import oci_image
import packages
import sbom
import tree

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent.parent

# One static program is the image's shell, with what place-plugin needs.
BUSYBOX_PACKAGE = 'busybox-static'
BUSYBOX_PLACE = 'bin/busybox'
APPLETS = ('sh', 'cat', 'chmod', 'chown', 'cp', 'id', 'ls', 'mkdir', 'mount', 'mv', 'rm')
USERS = f'root:x:0:0:root:/:/bin/sh\nnccl-exporter:x:{oci_image.USER}:{oci_image.USER}:NCCL metrics:/:/bin/sh\n'
GROUPS = f'root:x:0:\nnccl-exporter:x:{oci_image.USER}:\n'


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit_and_time():
    """Commit and time of the checkout. If it has changes, the commit ends in "-modified"."""
    commit = output_of('git', 'rev-parse', '--short=12', 'HEAD')
    if output_of('git', 'status', '--porcelain', '--untracked-files=no'):
        commit += '-modified'
    return commit, int(output_of('git', 'log', '-1', '--format=%ct'))


def root_of(architecture):
    """The folder with Debian's packages for it: this machine, or one that is made for a cross build."""
    if not architecture.root:
        return '/'
    return os.environ.get(architecture.root) or output_of(f'tools/{architecture.config}-root')


def build(architecture, commit, root):
    bazel = ['bazel', *shlex.split(os.environ.get('BAZEL_STARTUP', ''))]
    options = shlex.split(os.environ.get('BAZEL_BUILD', '')) + ['--stamp', f'--embed_label={commit}']
    if architecture.config:
        options += [f'--config={architecture.config}', f'--repo_env={architecture.root}={root}']
    subprocess.run([*bazel, 'build', '--noshow_progress', *options, *tree.TARGETS, *gpu_kit.TARGETS], check=True)
    return pathlib.Path(output_of(*bazel, 'info', *options, 'bazel-bin'))


def busybox_of(system):
    """The file, in either of the places where Debian's releases have it."""
    files = [system.root / place for place in ('usr/bin/busybox', 'bin/busybox') if (system.root / place).exists()]
    if not files:
        raise ValueError(f'{BUSYBOX_PACKAGE}, the shell of the image, is not installed in {system.root}')
    return files[0].resolve()


def image_root(usr, shell, folder):
    """The tree with a shell and two users; of the documents, licenses and bill of materials alone."""
    root = folder / 'image'
    shutil.copytree(usr, root / 'usr', symlinks=True)
    for path in (root / 'usr' / tree.DOCUMENTS).iterdir():
        if path.name not in ('LICENSE', 'copyright', 'licenses', tree.SBOM.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    for name in ('etc', 'tmp', 'run/nccl-exporter'):
        (root / name).mkdir(parents=True)
    for name in ('tmp', 'run/nccl-exporter'):
        (root / name).chmod(0o1777)
    (root / 'bin').symlink_to('usr/bin')
    shutil.copy(shell, root / 'usr' / BUSYBOX_PLACE)
    for applet in APPLETS:
        (root / 'bin' / applet).symlink_to('busybox')
    (root / 'etc/passwd').write_text(USERS)
    (root / 'etc/group').write_text(GROUPS)
    return root


def release(architecture, commit, seconds, folder, output):
    """Writes the files of one architecture. Returns the version and the root of its image."""
    usr = folder / 'usr'
    root = root_of(architecture)
    system = carried.System(root)
    shell = busybox_of(system)
    busybox = system.package_of(shell)
    built = build(architecture, commit, root)
    staged = tree.Tree(usr, built, architecture, system)
    staged.stage()
    for name, data in carried.license_files([busybox]).items():
        staged.write(data, tree.DOCUMENTS / 'licenses' / name)
    version = staged.output('--version').decode().split()[1]
    title = f'nccl-exporter-{version}-{architecture.name}'

    files = {name: ((usr / name).read_bytes(), package) for name, package in staged.origins.items()}
    files[BUSYBOX_PLACE] = (shell.read_bytes(), busybox)
    bill = sbom.document(title, version, commit, seconds, files, [*staged.packages(), busybox])
    staged.write(bill.encode(), tree.SBOM)
    (output / f'{title}.spdx.json').write_text(bill, encoding='utf-8')

    (output / f'{title}.tar.gz').write_bytes(archive.compressed(archive.tar(usr, f'{title}/', seconds)))
    gpu_kit.write(tree.Tree(folder / 'kit', built, architecture, system), commit, seconds, output)
    packages.deb(usr, version, architecture, seconds, output)
    packages.rpm(usr, version, {'Apache-2.0', *(package.license for package in staged.packages())}, architecture, seconds, output)
    return version, image_root(usr, shell, folder)


def make_kits(chosen, commit, seconds, made, output):
    for architecture in chosen:
        root = root_of(architecture)
        built = build(architecture, commit, root)
        gpu_kit.write(tree.Tree(made / architecture.name, built, architecture, carried.System(root)), commit, seconds, output)


def make(chosen, commit, seconds, made, output):
    image = None
    for architecture in chosen:
        version, root = release(architecture, commit, seconds, made / architecture.name, output)
        image = image or oci_image.Image(version, commit, seconds)
        image.add(architecture, root)
    image.write(made / 'layout')
    (output / f'nccl-exporter-{image.version}.oci.tar').write_bytes(archive.tar(made / 'layout', '', seconds))


def write_sums(output):
    sums = [f'{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n' for file in sorted(output.iterdir())]
    (output / 'SHA256SUMS').write_text(''.join(sums))
    for file in sorted(output.iterdir()):
        print(file)


def main():
    parser = argparse.ArgumentParser(prog='tools/release', description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--output', type=pathlib.Path, required=True, help='folder for the files, empty or new')
    parser.add_argument('--gpu-kit', action='store_true', help='make the GPU kits alone')
    parser.add_argument('--architecture', action='append', help=f'{" or ".join(architectures.ALL)} (default: both)')
    arguments = parser.parse_args()
    output = arguments.output.resolve()
    os.chdir(REPOSITORY)
    os.umask(0o022)
    try:
        chosen = [architectures.find(name) for name in sorted(set(arguments.architecture or architectures.ALL))]
        commit, seconds = commit_and_time()
        output.mkdir(parents=True, exist_ok=True)
        if any(output.iterdir()):
            raise ValueError(f'{output} is not empty: its checksums would be those of other files, too')
        with tempfile.TemporaryDirectory() as made:
            (make_kits if arguments.gpu_kit else make)(chosen, commit, seconds, pathlib.Path(made), output)
        write_sums(output)
    except (ValueError, OSError) as problem:
        sys.exit(f'tools/release: {problem}')
    except subprocess.CalledProcessError as problem:
        sys.exit(f'tools/release: {shlex.join(map(str, problem.cmd))} failed with status {problem.returncode}\n{problem.stderr or ""}'.rstrip())


if __name__ == '__main__':
    main()
