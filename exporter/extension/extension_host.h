// SPDX-License-Identifier: Apache-2.0
// ExtensionHost, extensions in an ordered list, and what becomes of their gifts: a file of labels,
// families at a socket, files of their own. For one thread, but for Page().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "exporter/extension/extension_library.h"

namespace nccl_exporter::exporter {

struct ExtensionPlaces {
  std::string labels_directory;  // of the daemon's --labels.dir; empty: labels go nowhere
  std::string output_directory;  // of files of sinks, in a folder of each; empty: they go nowhere
  size_t most_files = 48;        // of one extension: the oldest names go first
};

class ExtensionHost {
 public:
  using Say = std::function<void(const std::string& line)>;

  // `extensions` in their order, created. Makes the places, where their parents are there.
  ExtensionHost(std::vector<std::unique_ptr<ExtensionLibrary>> extensions, ExtensionPlaces places,
                Say say);

  // Lets the extensions see this answer of the daemon, which is untrusted. False if it is none.
  // Says of each extension why something was refused or lost, once, and what it gives, when that
  // has changed and a minute has passed since the last such line by `now_ns`, of any clock.
  bool See(std::string_view protobuf, int64_t now_ns);

  // The families of the latest answer in the protobuf format. Any thread.
  std::shared_ptr<const std::string> Page() const;

 private:
  void WriteLabels(const ExtensionSnapshot& snapshot, const ExtensionLibrary& extension,
                   const ExtensionGifts& gifts);
  void Append(const ExtensionLibrary& extension, const ExtensionGifts& gifts);
  void SayGifts(const ExtensionLibrary& extension, const ExtensionGifts& gifts, int64_t now_ns);
  // Says a line about a matter of an extension, unless it was the last one about it.
  void SayOnce(const ExtensionLibrary& extension, const std::string& matter,
               const std::string& text);

  const std::vector<std::unique_ptr<ExtensionLibrary>> extensions_;
  const ExtensionPlaces places_;
  const Say say_;
  std::map<const ExtensionLibrary*, std::string> written_labels_;
  std::map<const ExtensionLibrary*, std::pair<std::string, int64_t>> said_gifts_;  // and when
  std::map<std::pair<const ExtensionLibrary*, std::string>, std::string> said_;    // by matter
  mutable std::mutex mutex_;                                                       // guards page_
  std::shared_ptr<const std::string> page_ = std::make_shared<std::string>();
};

}  // namespace nccl_exporter::exporter
