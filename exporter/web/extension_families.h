// SPDX-License-Identifier: Apache-2.0
// ExtensionFamilies, families of `nccl-exporter extension run`, which a scrape has beside the
// daemon's own. Nothing that comes from there changes or hides one of those.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/exposition/plain_families.h"

namespace nccl_exporter::exporter {

// An answer that takes longer is late. Answers are asked for between scrapes, so that no scrape
// waits.
inline constexpr std::chrono::milliseconds kExtensionDeadline{50};

// For how long the newest answer is served while no other comes.
inline constexpr std::chrono::seconds kExtensionRetention{60};

// Bytes and samples of an answer. A larger one is refused as a whole.
inline constexpr size_t kMostExtensionAnswerBytes = 4 << 20, kMostExtensionSamplesInAll = 10'000;

// The fault of these families of extensions, or an empty text. Pure.
std::string FaultOfExtensions(const std::vector<PlainFamily>& families);

class ExtensionFamilies {
 public:
  using Clock = std::chrono::steady_clock;

  // `socket` is the path of a Unix socket, or empty: there are none.
  explicit ExtensionFamilies(std::string socket);

  // Asks for a new answer. For one thread. Logs a fault once, until it is another.
  void Fetch(Clock::time_point now);

  // Appends the families. Any thread.
  void AddTo(Exposition& exposition) const;

  // Answers that were late, refused or none, since the start. Any thread.
  uint64_t faults() const;

 private:
  // The fault of the answer, or an empty text.
  std::string Take(std::string_view answer);

  const std::string socket_;
  std::string said_;
  Clock::time_point taken_{};
  mutable std::mutex mutex_;  // guards what follows
  std::shared_ptr<const std::vector<PlainFamily>> families_;
  uint64_t faults_ = 0;
};

}  // namespace nccl_exporter::exporter
