"""The toolchain of --config=aarch64: Debian's cross compiler, and a folder with Debian's libraries for Arm."""

_BUILD = """
load("@bazel_tools//tools/cpp:unix_cc_toolchain_config.bzl", "cc_toolchain_config")

package(default_visibility = ["//visibility:public"])

filegroup(name = "nothing")

cc_toolchain_suite(
    name = "toolchain",
    toolchains = {{"aarch64": ":gcc", "aarch64|gcc": ":gcc"}},
)

cc_toolchain(
    name = "gcc",
    all_files = ":nothing",
    ar_files = ":nothing",
    as_files = ":nothing",
    compiler_files = ":nothing",
    dwp_files = ":nothing",
    linker_files = ":nothing",
    objcopy_files = ":nothing",
    strip_files = ":nothing",
    supports_param_files = 1,
    toolchain_config = ":gcc_config",
    toolchain_identifier = "aarch64-linux-gnu-gcc",
)

# The flags are those that Bazel finds for the compiler of the machine itself.
cc_toolchain_config(
    name = "gcc_config",
    abi_libc_version = "glibc",
    abi_version = "gcc",
    builtin_sysroot = "{sysroot}",
    compile_flags = ["-U_FORTIFY_SOURCE", "-fstack-protector", "-fno-omit-frame-pointer"],
    compiler = "gcc",
    cpu = "aarch64",
    cxx_builtin_include_directories = {includes},
    cxx_flags = [],
    host_system_name = "local",
    link_flags = ["-fuse-ld=gold", "-Wl,-no-as-needed", "-Wl,-z,relro,-z,now", "-pass-exit-codes"],
    link_libs = ["-lstdc++", "-lm"],
    opt_compile_flags = ["-D_FORTIFY_SOURCE=1", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"],
    opt_link_flags = ["-Wl,--gc-sections"],
    supports_start_end_lib = True,
    target_libc = "glibc",
    target_system_name = "aarch64-linux-gnu",
    tool_paths = {tools},
    toolchain_identifier = "aarch64-linux-gnu-gcc",
    unfiltered_compile_flags = ["-fno-canonical-system-headers"],
)
"""

def _aarch64_impl(repository_ctx):
    compiler = repository_ctx.which("aarch64-linux-gnu-gcc")
    sysroot = repository_ctx.os.environ.get("NCCL_EXPORTER_AARCH64_ROOT", "")
    if compiler == None or not repository_ctx.path(sysroot + "/usr/include/gtest/gtest.h").exists:
        fail("--config=aarch64 needs a cross compiler and a folder with libraries: tools/aarch64-root makes both")
    found = repository_ctx.execute([compiler, "--sysroot=" + sysroot, "-E", "-x", "c++", "/dev/null", "-v"]).stderr
    listed = found.split("#include <...> search starts here:")[1].split("End of search list.")[0]
    includes = [str(repository_ctx.path(line.strip())) for line in listed.strip().split("\n")]
    tools = {tool: str(compiler.dirname) + "/aarch64-linux-gnu-" + tool for tool in [
        "ar",
        "cpp",
        "dwp",
        "gcc",
        "gcov",
        "ld",
        "nm",
        "objcopy",
        "objdump",
        "strip",
    ]}
    tools["llvm-cov"] = "/bin/false"  # the rule wants a path; coverage is not measured on Arm
    repository_ctx.file("BUILD.bazel", _BUILD.format(includes = includes, sysroot = sysroot, tools = tools))

aarch64 = repository_rule(
    implementation = _aarch64_impl,
    environ = ["NCCL_EXPORTER_AARCH64_ROOT"],
    local = True,
)
