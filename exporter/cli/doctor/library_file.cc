// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/library_file.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string_view>

namespace nccl_exporter::exporter {
namespace {

constexpr off_t kLibraryLimitBytes = off_t{64} << 20;  // of a plugin or a C library
constexpr off_t kNcclLimitBytes = off_t{4} << 30;      // a library with NCCL inside has 1.5 GB
constexpr size_t kPieceBytes = 1 << 20;
constexpr size_t kTextBytes = 32;  // the longest text that is looked for, with its numbers

// Reads the file by pieces, since another user may change it meanwhile, and calls `use` with what
// follows each `beginning`, until that returns false.
template <typename Use>
void ForEachText(const OpenedFile& file, off_t limit, std::string_view beginning, Use use) {
  std::string piece;
  for (off_t offset = 0; offset < limit;) {
    piece.erase(0, piece.size() - std::min(piece.size(), kTextBytes));
    const size_t kept = piece.size();
    piece.resize(kept + kPieceBytes);
    const ssize_t bytes = ::pread(file.number(), piece.data() + kept, kPieceBytes, offset);
    if (bytes <= 0) return;
    offset += bytes;
    piece.resize(kept + static_cast<size_t>(bytes));
    for (size_t at = piece.find(beginning); at != std::string::npos;
         at = piece.find(beginning, at + 1)) {
      const size_t end = at + beginning.size();
      if (!use(piece.substr(end, kTextBytes - beginning.size()).c_str())) return;
    }
  }
}

// Returns why the file is no library of a machine with 64 bits.
std::string ReadMachine(const OpenedFile& file, uint16_t& machine) {
  Elf64_Ehdr header{};
  if (::pread(file.number(), &header, sizeof header, 0) != sizeof header ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0)
    return "it is no ELF file";
  machine = header.e_machine;
  const bool is_usual =
      header.e_ident[EI_CLASS] == ELFCLASS64 && header.e_ident[EI_DATA] == ELFDATA2LSB;
  return is_usual ? "" : "it is no 64-bit little-endian ELF file";
}

}  // namespace

LibraryFile ReadLibrary(const SeenPath& path) {
  LibraryFile library;
  const OpenedFile file = OpenRegular(path, library.fault);
  if (!file.is_open()) return library;
  library.fault = ReadMachine(file, library.machine);
  if (library.fault.empty() && file.status().st_size > kLibraryLimitBytes)
    library.fault = "it is too large for a library of this kind";
  if (!library.fault.empty()) return library;
  ForEachText(file, kLibraryLimitBytes, "GLIBC_", [&](const char* text) {
    GlibcVersion version;
    if (std::sscanf(text, "%d.%d", &version.first, &version.second) == 2)
      library.glibc = std::max(library.glibc, version);
    return true;
  });
  ForEachText(file, kLibraryLimitBytes, "ncclProfiler_v", [&](const char* text) {
    int version = 0;
    if (std::sscanf(text, "%d", &version) == 1) library.profilers.insert(version);
    return true;
  });
  return library;
}

int NcclVersionOfLibrary(const SeenPath& path) {
  int found = 0;
  std::string ignored;
  const OpenedFile file = OpenRegular(path, ignored);
  if (!file.is_open() || file.status().st_size > kNcclLimitBytes) return 0;
  ForEachText(file, kNcclLimitBytes, "NCCL version ", [&](const char* text) {
    int major = 0, minor = 0, patch = 0;
    if (std::sscanf(text, "%d.%d.%d", &major, &minor, &patch) != 3 || major != 2) return true;
    found = major * 10000 + minor * 100 + patch;
    return false;
  });
  return found;
}

}  // namespace nccl_exporter::exporter
