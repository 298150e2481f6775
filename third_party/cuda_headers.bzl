"""The CUDA Toolkit's driver header where it is installed, and an empty library where it is not."""

def _cuda_headers_impl(repository_ctx):
    header = repository_ctx.path(repository_ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/include/cuda.h")
    if header.exists:
        repository_ctx.symlink(header, "include/cuda.h")
        attributes = "hdrs = ['include/cuda.h'], includes = ['include'], defines = ['NCCL_EXPORTER_HAVE_CUDA=1'],"
    else:
        attributes = "defines = ['NCCL_EXPORTER_HAVE_CUDA=0'],"
    repository_ctx.file("BUILD.bazel", "cc_library(name = 'cuda_headers', visibility = ['//visibility:public'], %s)\n" % attributes)

cuda_headers = repository_rule(
    implementation = _cuda_headers_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
