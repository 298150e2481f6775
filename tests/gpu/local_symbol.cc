// SPDX-License-Identifier: Apache-2.0
#include "tests/gpu/local_symbol.h"

#include <dlfcn.h>
#include <elf.h>

#include <fstream>
#include <vector>

namespace nccl_exporter {
namespace {

template <typename Entry>
std::vector<Entry> ReadTable(std::ifstream& file, uint64_t offset, uint64_t count) {
  std::vector<Entry> table(count);
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(reinterpret_cast<char*>(table.data()),
            static_cast<std::streamsize>(count * sizeof(Entry)));
  return file ? table : std::vector<Entry>();
}

}  // namespace

void* FindLocalSymbol(const void* address_in_library, const std::string& name) {
  Dl_info library{};
  if (dladdr(address_in_library, &library) == 0) return nullptr;
  std::ifstream file(library.dli_fname, std::ios::binary);
  const auto header = ReadTable<Elf64_Ehdr>(file, 0, 1);
  if (header.empty()) return nullptr;
  const auto sections = ReadTable<Elf64_Shdr>(file, header[0].e_shoff, header[0].e_shnum);
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections.size()) continue;
    const auto symbols =
        ReadTable<Elf64_Sym>(file, section.sh_offset, section.sh_size / sizeof(Elf64_Sym));
    const Elf64_Shdr& strings = sections[section.sh_link];
    std::vector<char> names = ReadTable<char>(file, strings.sh_offset, strings.sh_size);
    names.push_back('\0');
    for (const Elf64_Sym& symbol : symbols) {
      if (symbol.st_name < names.size() && name == names.data() + symbol.st_name) {
        return static_cast<char*>(library.dli_fbase) + symbol.st_value;
      }
    }
  }
  return nullptr;
}

}  // namespace nccl_exporter
