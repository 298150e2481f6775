// SPDX-License-Identifier: Apache-2.0
// What an ELF file says about the machine and the C library that it needs. For any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exporter/cli/doctor/seen_path.h"

namespace nccl_exporter::exporter {

// A version of glibc, as 2.34.
struct GlibcVersion {
  int major = 0;
  int minor = 0;

  auto operator<=>(const GlibcVersion&) const = default;
  std::string Text() const { return std::to_string(major) + '.' + std::to_string(minor); }
};

struct ElfFile {
  std::string fault;  // why it is no usable ELF file; empty: the rest has a meaning
  bool is_64_bit = false;
  uint16_t machine = 0;                       // EM_X86_64, EM_AARCH64, ...
  GlibcVersion needs_glibc;                   // the newest GLIBC_ version that it needs; 0.0: none
  GlibcVersion defines_glibc;                 // the newest that it has: of libc.so.6 itself
  std::vector<std::string> profiler_symbols;  // ncclProfiler_v1, ...
};

// Reads sections of a 64-bit little-endian file (elf(5); versions: .gnu.version_r and
// .gnu.version_d). `path` may name anything, and the file may hold anything: each offset is
// checked, and what does not fit is a fault. Nothing of it is executed.
ElfFile ReadElfFile(const SeenPath& path);

// "x86-64", "arm64", or the number.
std::string MachineText(uint16_t machine);

}  // namespace nccl_exporter::exporter
