// SPDX-License-Identifier: Apache-2.0
// LibraryFile, facts about a shared library that its header and its texts give, and NCCL's release.
// Nothing of a file is executed, and a file may hold anything. For any thread.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "exporter/cli/doctor/seen_path.h"

namespace nccl_exporter::exporter {

// A version of glibc: 2 and 34; 0 and 0: none.
using GlibcVersion = std::pair<int, int>;

struct LibraryFile {
  std::string fault;     // why it is no library; empty: the rest has a meaning
  uint16_t machine = 0;  // EM_X86_64, EM_AARCH64, ...; 0: it is no ELF file. Of larger files, too
  // The newest GLIBC_ version that it names: a library needs it, and libc.so.6 has it.
  GlibcVersion glibc;
  std::set<int> profilers;  // each N of the ncclProfiler_vN that it names
};

LibraryFile ReadLibrary(const SeenPath& path);

// NCCL's release by the text that the library logs ("NCCL version 2.28.9"): 22809; 0 if there is
// none. Reads the whole file, 300 MB, in the worst case, and none above 4 GiB.
int NcclVersionOfLibrary(const SeenPath& path);

}  // namespace nccl_exporter::exporter
