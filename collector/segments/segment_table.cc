// SPDX-License-Identifier: Apache-2.0
// Following of segments, and the sharing of room; segment_discovery.cc has their beginning,
// segment_removal.cc their end.
#include "collector/segments/segment_table.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <tuple>
#include <utility>

#include "collector/node_snapshot.h"

namespace nccl_exporter::collector {
namespace {

// Descriptors that must be left for connections, listening and reading: twice what the web server
// may hold.
constexpr size_t kReservedDescriptors = 256;

// Where the limit of descriptors is low, few segments must not keep the rest of the daemon from
// opening files.
size_t SegmentLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
    return kMaxSegments;
  const size_t allowed = limit.rlim_cur > 2 * kReservedDescriptors
                             ? limit.rlim_cur - kReservedDescriptors
                             : limit.rlim_cur / 2;
  return std::min(kMaxSegments, allowed);
}

}  // namespace

SegmentTable::SegmentTable(std::vector<std::string> directories, std::chrono::nanoseconds retention,
                           bool splits_durations)
    : retention_(retention),
      splits_durations_(splits_durations),
      waits_after_(std::min<std::chrono::nanoseconds>(kWaitsAfter, retention / 2)),
      waiters_interval_(std::min<std::chrono::nanoseconds>(kWaitersInterval, retention / 4)),
      segment_limit_(SegmentLimit()) {
  for (std::string& path : directories) {
    if (IsPrivatePattern(path)) {
      path.pop_back();
      const std::filesystem::path all(path);
      directories_.push_back(
          {.files = SegmentDirectory(all.has_parent_path() ? all.parent_path().string() : "."),
           .private_prefix = all.filename()});
    } else if (known_.insert(path).second) {
      directories_.push_back({.files = SegmentDirectory(std::move(path))});
    }
  }
}

SegmentLooks SegmentTable::Look(const Moment& now) {
  errors_.SetNow(now.realtime_ns);
  Observe(now);
  removals_.clear();
  RemoveOver(now);
  RemoveSetAside(now);
  return LookAtFollowed();
}

// Segments with few slots come first, so that those with many share what they leave.
SegmentLooks SegmentTable::LookAtFollowed() const {
  SegmentLooks looks;
  std::map<uint64_t, std::vector<const Segments::value_type*>> living;  // by user
  for (const auto& entry : segments_) {
    const Segment& segment = entry.second.segment;
    looks.emplace_hint(looks.end(), entry.first,
                       SegmentLook{.file = segment.file(),
                                   .is_alive = segment.is_alive(),
                                   .clock_offset_ns = segment.ClockOffsetNs(),
                                   .slots = {}});
    if (segment.is_alive()) living[entry.second.uid].push_back(&entry);
  }
  for (auto& [uid, order] : living) {
    std::ranges::stable_sort(order, {},
                             [](const auto* entry) { return entry->second.segment.SlotsWanted(); });
    uint64_t left = kMaxSlotsPerUser;
    for (size_t i = 0; i < order.size(); ++i) {
      const uint64_t part = left / (order.size() - i);
      uint64_t unused = part;
      looks[order[i]->first].slots = ReadSlotDirectory(*order[i]->second.segment.file(), &unused);
      left -= part - unused;
    }
  }
  return looks;
}

void SegmentTable::Follow(const FileKey& key, Followed followed) {
  if (const auto aside = set_aside_.find(key); aside != set_aside_.end()) TakeUp(aside);
  ++followed_of_[followed.uid];
  segments_.insert_or_assign(key, std::move(followed));
}

SegmentTable::Segments::iterator SegmentTable::Unfollow(Segments::iterator segment) {
  TakeOne(followed_of_, segment->second.uid);
  proven_.erase(segment->first);
  return segments_.erase(segment);
}

// Whether there is room for one more segment of the user.
bool SegmentTable::MakeRoom(uint64_t uid, bool is_alive) {
  const size_t count = NumberOf(followed_of_, uid);
  if (count < kMaxSegmentsPerUser) {
    if (segments_.size() < segment_limit_) return true;
    const auto most =
        std::ranges::max_element(followed_of_, {}, [](const auto& user) { return user.second; });
    if (most != followed_of_.end() && most->second > count + 1 && GiveWay(most->first, true))
      return true;
  }
  return is_alive && GiveWay(uid, false);
}

// Lets go of one segment of the user: of the dead, or else, if that may be, of the living.
bool SegmentTable::GiveWay(uint64_t uid, bool also_the_living) {
  auto chosen = segments_.end();
  for (auto it = segments_.begin(); it != segments_.end(); ++it) {
    if (it->second.uid != uid || (it->second.segment.is_alive() && !also_the_living)) continue;
    chosen = it;
    if (!it->second.segment.is_alive()) break;
  }
  if (chosen == segments_.end()) return false;
  Unfollow(chosen);
  return true;
}

void SegmentTable::Refuse(Directory& directory, const std::string& name, uint64_t uid) {
  if (directory.listing) directory.listing->refused.insert(uid);
  if (!directory.refused.insert(uid).second) return;
  errors_.Add(SegmentError::kTooManySegments, uid, directory.files.path() + '/' + name,
              "no room beside " + std::to_string(NumberOf(followed_of_, uid)) + " segments and " +
                  std::to_string(NumberOf(set_aside_of_, uid)) + " other files of the user, and " +
                  std::to_string(directories_.size()) + " directories");
}

// In a private directory only its user may unlink.
bool SegmentTable::IsExpected(const SetAside& aside) {
  return aside.error == SegmentError::kUnlinkFailed && aside.place.directory->files.owner();
}

void SegmentTable::PutAside(const FileKey& key, SetAside aside, const std::string& detail) {
  const auto known = set_aside_.find(key);
  const bool has_room =
      set_aside_.size() < kMaxSetAside && NumberOf(set_aside_of_, aside.uid) < kMaxSetAsidePerUser;
  if (known == set_aside_.end() && !has_room)
    return Refuse(*aside.place.directory, aside.place.name, aside.uid);
  const bool is_same = known != set_aside_.end() && known->second.stamp == aside.stamp &&
                       known->second.error == aside.error;
  if (!is_same && aside.error && !IsExpected(aside)) {
    errors_.Add(*aside.error, aside.uid,
                aside.place.directory->files.path() + '/' + aside.place.name, detail);
  }
  if (known != set_aside_.end()) TakeUp(known);
  ++set_aside_of_[aside.uid];
  set_aside_.insert_or_assign(key, std::move(aside));
}

std::map<FileKey, SegmentTable::SetAside>::iterator SegmentTable::TakeUp(
    std::map<FileKey, SetAside>::iterator aside) {
  TakeOne(set_aside_of_, aside->second.uid);
  return set_aside_.erase(aside);
}

// Users in the order of what they want: each may take an equal part of what those before have left,
// so that no user's communicators take the room of another's. Segments of the living come first: so
// no finalized communicator keeps the room that one in use lacks. What was copied is charged
// whatever came of it: so room bounds the cost of reading as well.
void SegmentTable::ShareCommunicators(const Moment& now, const Wanted& wanted, const Take& take) {
  struct User {
    uint64_t wanted = 0;
    std::vector<Segments::value_type*> segments;
    std::vector<RoomWanted> wanted_of_each;
  };
  std::map<uint64_t, User> users;
  for (auto& entry : segments_) {
    User& user = users[entry.second.uid];
    const RoomWanted& room = user.wanted_of_each.emplace_back(wanted(entry.first, entry.second));
    user.wanted += std::accumulate(room.begin(), room.end(), uint64_t{0});
    user.segments.push_back(&entry);
  }
  std::vector<User*> order;
  for (auto& [uid, user] : users) order.push_back(&user);
  std::ranges::stable_sort(order, {}, &User::wanted);
  uint64_t left = kMaxCommunicators;
  for (size_t i = 0; i < order.size(); ++i) {
    const uint64_t share = left / (order.size() - i);
    SharedRoom room(order[i]->wanted_of_each, share);
    uint64_t slots_left = kMaxSlotsPerUser;
    for (const bool is_alive : {true, false}) {
      for (size_t k = 0; k < order[i]->segments.size(); ++k) {
        auto& [key, followed] = *order[i]->segments[k];
        if (followed.segment.is_alive() != is_alive) continue;
        RoomLimits limits = room.LimitsOf(k);
        // Communicators of the dead are as important as those of other dead processes.
        if (!is_alive) limits.in_use = limits.all;
        const ReadTerms terms{.now = now,
                              .retention = retention_,
                              .communicator_limit = limits.all,
                              .in_use_limit = limits.in_use,
                              .slots_left = &slots_left,
                              .splits_durations = splits_durations_};
        const uint64_t taken = std::min(take(key, followed, terms), limits.in_use);
        room.Take(k, taken);
        left -= taken;
      }
    }
  }
}

void SegmentTable::Observe(const Moment& now) {
  std::set<pid_t> writers;
  for (auto& [key, followed] : segments_) {
    if (const pid_t pid = followed.segment.LookAtLock(); pid != 0) writers.insert(pid);
  }
  for (auto& [key, followed] : segments_) followed.segment.Observe(now, retention_, writers);
  ShareCommunicators(
      now,
      [](const FileKey&, const Followed& followed) {
        return followed.segment.is_alive() ? RoomWanted{} : followed.segment.CommunicatorsWanted();
      },
      [&](const FileKey&, Followed& followed, const ReadTerms& terms) {
        return followed.segment.KeepLastState(terms, ErrorsOf(followed));
      });
}

SegmentErrorCounts::Present SegmentTable::PresentFaults() const {
  SegmentErrorCounts::Present present;
  for (const Directory& directory : directories_) {
    if (directory.is_unreadable) ++present[{directory.uid, SegmentError::kDirectoryUnreadable}];
    for (const uint64_t uid : directory.refused) present[{uid, SegmentError::kTooManySegments}] = 1;
  }
  for (const auto& [key, aside] : set_aside_) {
    if (aside.error && !IsExpected(aside)) ++present[{aside.uid, *aside.error}];
  }
  for (const auto& [key, followed] : segments_) {
    for (const SegmentError fault : followed.segment.Faults()) ++present[{followed.uid, fault}];
  }
  return present;
}

NodeSnapshot SegmentTable::Read(SegmentLooks looks, const Moment& now) {
  NodeSnapshot snapshot;
  snapshot.taken_realtime_ns = now.realtime_ns;
  const auto wanted = [&](const FileKey& key, const Followed& followed) {
    RoomWanted room = followed.segment.CommunicatorsWanted();
    const auto look = looks.find(key);
    if (look == looks.end() || !followed.segment.is_alive()) return room;
    uint64_t in_use = 1, finalized = 0;  // with the overflow slot
    for (const SlotHead& head : look->second.slots.heads) {
      in_use += head.state() == layout::SlotState::kLive;
      finalized += head.state() == layout::SlotState::kClosed &&
                   now.Ahead(look->second.clock_offset_ns).AgeOf(head.closed_monotonic_ns) <=
                       static_cast<uint64_t>(retention_.count());
    }
    room[0] = std::max(room[0], in_use);
    room[2] = std::max(room[2], finalized);
    return room;
  };
  ShareCommunicators(
      now, wanted, [&](const FileKey& key, Followed& followed, const ReadTerms& terms) {
        const auto look = looks.find(key);
        if (look == looks.end()) return uint64_t{0};
        return followed.segment.AddTo(snapshot, followed.place.name, std::move(look->second.slots),
                                      terms, ErrorsOf(followed));
      });
  for (const auto& [key, file] : set_aside_) {
    if (!file.error) ++snapshot.segments.starting;
    if (file.error && file.error != SegmentError::kUnlinkFailed) ++snapshot.segments.unusable;
  }
  std::ranges::sort(snapshot.processes, {}, [](const ProcessSnapshot& process) {
    return std::tuple<int64_t, const std::string&, FileKey>(process.start_realtime_ns,
                                                            process.segment, process.file);
  });
  SettleIdentities(snapshot, proven_);
  snapshot.segment_errors = errors_.values();
  snapshot.segment_troubles = errors_.Troubles(PresentFaults());
  return snapshot;
}

}  // namespace nccl_exporter::collector
