"""Compiler options of the plugin, which lives in processes of others."""

PLUGIN_COPTS = [
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    # Bazel keeps frame pointers: a tenth of the price of a callback.
    "-fomit-frame-pointer",
]
