"""The programs that fuzz a reader of texts: see text_fuzz.h."""

def text_fuzz(name, corpus, deps, texts = 20000):
    """Makes `name`, a test with so many texts from a fixed seed, and `name`_libfuzzer, which wants clang: tools/fuzz builds and runs it.

    Args:
      name: of the test; `name`_input.cc of the package has the function under test.
      corpus: folder of the package with the first texts.
      deps: of `name`_input.cc, besides text_fuzz.h.
      texts: how many the test makes.
    """
    native.cc_library(
        name = name + "_input",
        testonly = True,
        srcs = [name + "_input.cc"],
        visibility = ["//visibility:private"],
        deps = deps + ["//exporter/testing:text_fuzz"],
    )
    native.cc_test(
        name = name,
        size = "small",
        srcs = ["//exporter/testing:text_fuzz.cc"],
        args = ["%s/%s" % (native.package_name(), corpus), str(texts), "1"],
        data = native.glob([corpus + "/*"]),
        linkstatic = True,
        deps = [":%s_input" % name],
    )
    native.cc_binary(
        name = name + "_libfuzzer",
        testonly = True,
        srcs = ["//exporter/testing:text_fuzz_libfuzzer.cc"],
        linkopts = ["-fsanitize=fuzzer"],
        tags = ["manual"],
        deps = [":%s_input" % name],
    )
