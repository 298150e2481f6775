// SPDX-License-Identifier: Apache-2.0
// Equal shares of users in bounded memory: what one user does not need serves the others. Pure
// functions, for any thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {

// By user id: an equal part of what users with smaller needs leave of `room`. It may be more than
// the user needs.
inline std::map<uint64_t, size_t> EqualParts(const std::map<uint64_t, size_t>& needs, size_t room) {
  std::vector<std::pair<size_t, uint64_t>> by_need;
  for (const auto& [uid, need] : needs) by_need.emplace_back(need, uid);
  std::ranges::sort(by_need);
  std::map<uint64_t, size_t> parts;
  size_t users = by_need.size();
  for (const auto& [need, uid] : by_need) {
    const size_t part = parts[uid] = room / users--;
    room -= std::min(need, part);
  }
  return parts;
}

// Removes from `entries` what exceeds the shares of its user, in the order of `entries`. Returns
// how many were removed. `size_of` says how much of `room` an entry takes.
template <typename Entries, typename UserOf, typename SizeOf>
size_t KeepFairShares(Entries& entries, size_t room, UserOf user_of, SizeOf size_of) {
  std::map<uint64_t, size_t> needs;
  for (const auto& entry : entries) needs[user_of(entry)] += size_of(entry);
  std::map<uint64_t, size_t> shares = EqualParts(needs, room);
  return std::erase_if(entries, [&](const auto& entry) {
    size_t& left = shares[user_of(entry)];
    const size_t size = size_of(entry);
    if (size > left) return true;
    left -= size;
    return false;
  });
}

}  // namespace nccl_exporter::exporter
