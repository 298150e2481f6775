// SPDX-License-Identifier: Apache-2.0
// The simulated libnccl: the part of NCCL's library that a plugin can see. A library of its own,
// because plugins ask the library that holds the mask or the logger for its version, and the
// dynamic linker does not open a main program again.
#pragma once

#include <dlfcn.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

extern "C" {

int ncclGetVersion(int* version);

// NCCL's one event mask of the process; the address is handed to every init.
int* NcclSimEventMask();

// NCCL's logger; prints to stderr what the level of NcclSimConfigure lets through.
void NcclSimLog(int level, unsigned long flags, const char* file, int line, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

// `level` as NCCL counts: 0 none, 1 version, 2 warn, 3 info, 5 trace.
void NcclSimConfigure(int version, int level, int rank);
}

namespace nccl_exporter::sim {

// Path of a file that is installed beside this program.
inline std::filesystem::path SiblingPath(std::string_view file) {
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / file;
}

// The simulated libnccl, as this program uses it.
struct NcclLibrary {
  static constexpr const char* kFile = "libnccl-sim.so";

  int* event_mask = nullptr;
  decltype(&NcclSimLog) log = nullptr;
  decltype(&NcclSimConfigure) configure = nullptr;

  // Nothing, with a reason, if it is not beside the program.
  static std::optional<NcclLibrary> Load(std::string& error);
};

inline std::optional<NcclLibrary> NcclLibrary::Load(std::string& error) {
  // Global, as a framework loads the real one.
  void* library = dlopen(SiblingPath(kFile).c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    error = dlerror();
    return std::nullopt;
  }
  const auto mask =
      reinterpret_cast<decltype(&NcclSimEventMask)>(dlsym(library, "NcclSimEventMask"));
  const auto log = reinterpret_cast<decltype(&NcclSimLog)>(dlsym(library, "NcclSimLog"));
  const auto configure =
      reinterpret_cast<decltype(&NcclSimConfigure)>(dlsym(library, "NcclSimConfigure"));
  if (mask == nullptr || log == nullptr || configure == nullptr) {
    error = SiblingPath(kFile).string() + " lacks a symbol";
    return std::nullopt;
  }
  return NcclLibrary{mask(), log, configure};
}

}  // namespace nccl_exporter::sim
