// SPDX-License-Identifier: Apache-2.0
// Shares of the room for communicators. Pure functions, for any thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace nccl_exporter::collector {

// Ranks of communicators by importance, the most important first: in use, those of processes that
// have ended without finalizing them, finalized, and finalized before the process ended.
inline constexpr size_t kRoomRanks = 4;

// The room that the communicators of one file want, by rank.
using RoomWanted = std::array<uint64_t, kRoomRanks>;

// Parts of `room`: each is what is wanted, or an equal part of what smaller wishes leave.
inline std::vector<uint64_t> FairParts(const std::vector<uint64_t>& wanted, uint64_t room) {
  std::vector<size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) { return wanted[i]; });
  std::vector<uint64_t> parts(wanted.size());
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t part = std::min(wanted[order[i]], room / (order.size() - i));
    parts[order[i]] = part;
    room -= part;
  }
  return parts;
}

// Limits of the room of a file.
struct RoomLimits {
  uint64_t all = 0;
  uint64_t in_use = 0;  // for communicators in use alone, if that is more
};

// The room of one user, by files: first for the communicators that matter most, of all files, then
// for the next. So if there is no room for all, each file loses the same. Files are read one
// after another. What one leaves goes to the next. Where one has more in use than it was known to
// want, the room comes from what matters least in the files behind it.
class SharedRoom {
 public:
  SharedRoom(const std::vector<RoomWanted>& wanted, uint64_t room) : shares_(wanted.size()) {
    for (size_t rank = 0; rank < kRoomRanks; ++rank) {
      std::vector<uint64_t> of_rank;
      for (const RoomWanted& file : wanted) of_rank.push_back(file[rank]);
      const std::vector<uint64_t> parts = FairParts(of_rank, room - Sum(left_));
      for (size_t i = 0; i < parts.size(); ++i) shares_[i][rank] = parts[i];
      left_[rank] = shared_[rank] = std::accumulate(parts.begin(), parts.end(), uint64_t{0});
    }
    spare_ = room - Sum(left_);
  }

  RoomLimits LimitsOf(size_t file) const {
    const uint64_t own = Sum(SharesOf(file));
    const uint64_t least_of_others = Sum(left_) - left_[0] - (own - shares_[file][0]);
    return {.all = own + spare_, .in_use = own + spare_ + least_of_others};
  }

  // Notes the room that the file has taken, within its limits. Once for each file.
  void Take(size_t file, uint64_t taken) {
    const RoomWanted shares = SharesOf(file);
    const uint64_t all = Sum(shares) + spare_;
    for (size_t rank = 0; rank < kRoomRanks; ++rank) {
      left_[rank] -= shares[rank];
      shared_[rank] -= shares_[file][rank];
    }
    spare_ = all - std::min(all, taken);
    uint64_t owed = taken - std::min(all, taken);
    for (size_t rank = kRoomRanks - 1; rank > 0; --rank) {
      const uint64_t paid = std::min(owed, left_[rank]);
      left_[rank] -= paid;
      owed -= paid;
    }
  }

 private:
  static uint64_t Sum(const RoomWanted& room) {
    return std::accumulate(room.begin(), room.end(), uint64_t{0});
  }
  // Rest of the shares: each file has paid the same part.
  RoomWanted SharesOf(size_t file) const {
    RoomWanted shares = shares_[file];
    for (size_t rank = 0; rank < kRoomRanks; ++rank) {
      if (shared_[rank] != 0) shares[rank] = shares[rank] * left_[rank] / shared_[rank];
    }
    return shares;
  }

  std::vector<RoomWanted> shares_;
  // By rank, of the files that have not taken theirs: what they were given, and what is left of it.
  RoomWanted shared_{}, left_{};
  uint64_t spare_ = 0;
};

}  // namespace nccl_exporter::collector
