// SPDX-License-Identifier: Apache-2.0
// ExtensionHost, extensions in an ordered list, and what becomes of their gifts: a file of labels,
// families at a socket, files of their own. For one thread, but for Page().
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
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
  bool See(std::string_view protobuf);

  // The families of the latest answer in the protobuf format. Any thread.
  std::shared_ptr<const std::string> Page() const;

 private:
  void WriteLabels(const ExtensionSnapshot& snapshot, const ExtensionLibrary& extension,
                   const ExtensionGifts& gifts);
  void Append(const ExtensionLibrary& extension, const ExtensionGifts& gifts);
  // Says a line about an extension, unless it was the last one.
  void SayOnce(const ExtensionLibrary& extension, const std::string& text);

  const std::vector<std::unique_ptr<ExtensionLibrary>> extensions_;
  const ExtensionPlaces places_;
  const Say say_;
  std::map<const ExtensionLibrary*, std::string> said_, written_labels_;
  mutable std::mutex mutex_;  // guards page_
  std::shared_ptr<const std::string> page_ = std::make_shared<std::string>();
};

}  // namespace nccl_exporter::exporter
