"""NCCL and the CUDA runtime where they are installed; elsewhere an empty library, and HAVE_NCCL says so."""

def _first(repository_ctx, candidates):
    for candidate in candidates:
        path = repository_ctx.path(candidate)
        if path.exists:
            return path
    return None

def _find(repository_ctx):
    cuda = repository_ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    roots = [repository_ctx.os.environ.get("NCCL_HOME", cuda), cuda, "/usr"]
    libraries = ["/lib", "/lib64", "/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"]
    return {
        "cuda_include": _first(repository_ctx, [cuda + "/include/cuda_runtime.h"]),
        "nccl_include": _first(repository_ctx, [root + "/include/nccl.h" for root in roots]),
        "cudart": _first(repository_ctx, [cuda + directory + "/libcudart.so" for directory in ["/lib64", "/lib"]]),
        "nccl": _first(repository_ctx, [root + directory + "/libnccl.so" for root in roots for directory in libraries]),
    }

_LIBRARY = """
cc_library(
    name = "nccl",
    hdrs = glob(["nccl/nccl*.h", "nccl/nccl_device/**", "cuda/*.h", "cuda/*.hpp", "cuda/crt/*", "cuda/nv/**"]),
    includes = ["nccl", "cuda"],
    linkopts = ["-L{nccl}", "-L{cudart}", "-lnccl", "-lcudart", "-Wl,-rpath,{nccl}", "-Wl,-rpath,{cudart}"],
    visibility = ["//visibility:public"],
)
"""

_NOTHING = """
cc_library(name = "nccl", visibility = ["//visibility:public"])
"""

def _nccl_impl(repository_ctx):
    found = _find(repository_ctx)
    have_all = all([path != None for path in found.values()])
    if have_all:
        repository_ctx.symlink(found["cuda_include"].dirname, "cuda")
        repository_ctx.symlink(found["nccl_include"].dirname, "nccl")
        build = _LIBRARY.format(nccl = found["nccl"].dirname, cudart = found["cudart"].dirname)
    else:
        build = _NOTHING
    repository_ctx.file("BUILD.bazel", build)
    repository_ctx.file("nccl.bzl", "HAVE_NCCL = {}\nNCCL_LIBRARY = \"{}\"\n".format(
        have_all,
        found["nccl"] if found["nccl"] != None else "libnccl.so.2",
    ))

nccl = repository_rule(
    implementation = _nccl_impl,
    environ = ["CUDA_HOME", "NCCL_HOME"],
    local = True,
)
