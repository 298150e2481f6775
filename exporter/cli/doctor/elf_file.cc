// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/doctor/elf_file.h"

#include <elf.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>

namespace nccl_exporter::exporter {
namespace {

// A longer file is no plugin and no C library.
constexpr off_t kFileLimitBytes = off_t{64} << 20;
// Entries of a chained table that are followed, since a chain may be a circle.
constexpr int kMostEntries = 10000;

std::optional<std::string> ReadFile(const SeenPath& path, std::string& fault) {
  const OpenedFile file = OpenRegular(path, fault);
  if (!file.is_open()) return std::nullopt;
  if (file.status().st_size > kFileLimitBytes) {
    fault = "it is too large for a library of this kind";
    return std::nullopt;
  }
  std::string content(static_cast<size_t>(file.status().st_size), '\0');
  const ssize_t size = ::read(file.number(), content.data(), content.size());
  if (size < 0) {
    fault = std::strerror(errno);
    return std::nullopt;
  }
  content.resize(static_cast<size_t>(size));
  return content;
}

// Reads structures at offsets that the file names.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : bytes_(bytes) {}

  template <typename T>
  std::optional<T> At(uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) return std::nullopt;
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

  std::string_view TextAt(uint64_t offset) const {
    if (offset >= bytes_.size()) return {};
    const std::string_view rest = bytes_.substr(offset);
    return rest.substr(0, rest.find('\0'));
  }

 private:
  const std::string_view bytes_;
};

std::optional<GlibcVersion> GlibcVersionOf(std::string_view name) {
  constexpr std::string_view kPrefix = "GLIBC_";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  GlibcVersion version;
  const char* const end = name.data() + name.size();
  const auto [dot, error] = std::from_chars(name.data(), end, version.major);
  if (error != std::errc() || dot == end || *dot != '.') return std::nullopt;
  if (std::from_chars(dot + 1, end, version.minor).ec != std::errc()) return std::nullopt;
  return version;
}

void ReadSymbols(const Bytes& file, const Elf64_Shdr& section, uint64_t strings, ElfFile& elf) {
  for (uint64_t at = 0; at + sizeof(Elf64_Sym) <= section.sh_size; at += sizeof(Elf64_Sym)) {
    const auto symbol = file.At<Elf64_Sym>(section.sh_offset + at);
    if (!symbol) return;
    const std::string_view name = file.TextAt(strings + symbol->st_name);
    if (symbol->st_shndx != SHN_UNDEF && name.starts_with("ncclProfiler_v"))
      elf.profiler_symbols.emplace_back(name);
  }
}

void ReadNeeds(const Bytes& file, const Elf64_Shdr& section, uint64_t strings, ElfFile& elf) {
  uint64_t at = section.sh_offset;
  int left = kMostEntries;
  while (const auto need = file.At<Elf64_Verneed>(at)) {
    uint64_t entry_at = at + need->vn_aux;
    for (int i = 0; i < need->vn_cnt && left > 0; ++i, --left) {
      const auto entry = file.At<Elf64_Vernaux>(entry_at);
      if (!entry) return;
      if (const auto version = GlibcVersionOf(file.TextAt(strings + entry->vna_name)))
        elf.needs_glibc = std::max(elf.needs_glibc, *version);
      entry_at += entry->vna_next;
    }
    if (need->vn_next == 0 || --left <= 0) return;
    at += need->vn_next;
  }
}

void ReadDefinitions(const Bytes& file, const Elf64_Shdr& section, uint64_t strings, ElfFile& elf) {
  uint64_t at = section.sh_offset;
  for (int left = kMostEntries; left > 0; --left) {
    const auto definition = file.At<Elf64_Verdef>(at);
    if (!definition) return;
    const auto name = file.At<Elf64_Verdaux>(at + definition->vd_aux);
    if (!name) return;
    if (const auto version = GlibcVersionOf(file.TextAt(strings + name->vda_name)))
      elf.defines_glibc = std::max(elf.defines_glibc, *version);
    if (definition->vd_next == 0) return;
    at += definition->vd_next;
  }
}

}  // namespace

ElfFile ReadElfFile(const SeenPath& path) {
  ElfFile elf;
  const std::optional<std::string> content = ReadFile(path, elf.fault);
  if (!content) return elf;
  const Bytes file(*content);
  const auto header = file.At<Elf64_Ehdr>(0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0) {
    elf.fault = "it is no ELF file";
    return elf;
  }
  elf.is_64_bit = header->e_ident[EI_CLASS] == ELFCLASS64;
  elf.machine = header->e_machine;
  if (!elf.is_64_bit || header->e_ident[EI_DATA] != ELFDATA2LSB) {
    elf.fault = "it is no 64-bit little-endian ELF file";
    return elf;
  }
  for (uint64_t i = 0; i < header->e_shnum; ++i) {
    const auto section = file.At<Elf64_Shdr>(header->e_shoff + i * sizeof(Elf64_Shdr));
    if (!section) break;
    const auto strings =
        file.At<Elf64_Shdr>(header->e_shoff + section->sh_link * sizeof(Elf64_Shdr));
    if (!strings) continue;
    if (section->sh_type == SHT_DYNSYM) ReadSymbols(file, *section, strings->sh_offset, elf);
    if (section->sh_type == SHT_GNU_verneed) ReadNeeds(file, *section, strings->sh_offset, elf);
    if (section->sh_type == SHT_GNU_verdef)
      ReadDefinitions(file, *section, strings->sh_offset, elf);
  }
  std::ranges::sort(elf.profiler_symbols);
  return elf;
}

std::string MachineText(uint16_t machine) {
  if (machine == EM_X86_64) return "x86-64";
  return machine == EM_AARCH64 ? "arm64" : "machine " + std::to_string(machine);
}

}  // namespace nccl_exporter::exporter
