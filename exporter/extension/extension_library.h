// SPDX-License-Identifier: Apache-2.0
// ExtensionLibrary, an extension in this process, and the host's side of its interface. For one
// thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "exporter/extension/gifts.h"
#include "extension/nccl_exporter_extension.h"

namespace nccl_exporter::exporter {

// Folders in which a short name is looked for.
inline constexpr const char* kExtensionFolder = "/usr/lib/nccl-exporter/extensions";

class ExtensionLibrary {
 public:
  using Log = std::function<void(bool is_error, const std::string& text)>;

  // `name`: a short one, or a path, which has a slash. Throws std::runtime_error with what is
  // wrong: no such file, no object, another major, a struct that is too short, a wrong name.
  ExtensionLibrary(const std::string& name, const std::vector<std::string>& folders,
                   std::map<std::string, std::string> settings, Log log);
  ~ExtensionLibrary();  // destroys what Create() made; the library stays loaded
  ExtensionLibrary(const ExtensionLibrary&) = delete;
  ExtensionLibrary& operator=(const ExtensionLibrary&) = delete;

  const nccl_ext_extension& extension() const { return *extension_; }
  const std::string& path() const { return path_; }

  // False if the extension refuses its configuration.
  bool Create();
  // Lets it claim, as the first call of Take(). False if it fails.
  bool Claim(const ExtensionSnapshot& snapshot, ExtensionRound& round);
  // Lets it claim and give. What a call that failed has given is dropped, and `failed` says which.
  ExtensionGifts Take(const ExtensionSnapshot& snapshot, ExtensionRound& round,
                      std::string& failed);

 private:
  const std::map<std::string, std::string> settings_;
  const Log log_;
  std::string path_;
  const nccl_ext_extension* extension_ = nullptr;
  nccl_ext_host host_{};
  void* self_ = nullptr;
  bool is_created_ = false;
};

}  // namespace nccl_exporter::exporter
