// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <list>
#include <utility>

#include "tests/nccl_host/host_job/player.h"

namespace nccl_exporter::host_job {
namespace {

constexpr size_t kMostGroups = 6;
// On the board, behind those of Join().
constexpr int kLastPlace = 63, kFirstPlace = 64;
constexpr int kPauseUs = 50'000;
constexpr size_t kProbeBytes = 65536;

// A communicator as all ranks of the job know it.
struct Group {
  std::vector<int> members;  // ranks of the job, in the order of their ranks here
  Membership own;            // null where this rank is no member
  bool is_revoked = false, is_suspended = false;
};

// Communicators are split, shrunk, grown, suspended, revoked, aborted and made again. All ranks
// draw the same steps; those that are no members of a step's communicator skip it.
class ElasticPlayer : public Player {
 public:
  explicit ElasticPlayer(const Seat& seat)
      : Player(seat), seed_(*options_.elastic_seed * 1000003), draw_(seed_) {
    leaves_ = draw_.Chance(15);
  }

  void Play() override {
    for (step_ = 0; step_ < options_.iterations; ++step_) Step();
    rank_.Synchronize();
    if (options_.after > 0) GoOn();
    // A rank that ends while others work is a dead one, which makes a job unhealthy.
    seat_.board.Meet(kLastPlace, options_.ranks);
  }

  void End() override {
    Player::End();
    for (; !leaves_ && !groups_.empty(); EndGroup(groups_.begin())) ++step_;
  }

 private:
  using GroupIterator = std::list<Group>::iterator;

  void GoOn() {
    AddWorld();
    if (!options_.shares) Revoke(std::prev(groups_.end()));  // it is left while the job goes on
    ++step_;
    AddWorld();
    if (!options_.shares) Suspend(groups_.back());  // so is this one
    ++step_;
    AddWorld();
    for (int i = 0; i < options_.after; ++i) {
      rank_.Make({"allreduce", kProbeBytes}, groups_.back().own);
      rank_.Synchronize();
      usleep(kPauseUs);
    }
  }

  void Step() {
    draw_ = Draw(seed_ + 7919 * (step_ + 1));
    std::vector<GroupIterator> usable;
    for (auto group = groups_.begin(); group != groups_.end(); ++group)
      if (!group->is_revoked && group->members.size() > 1) usable.push_back(group);
    if (groups_.size() > kMostGroups) return EndGroup(groups_.begin());
    if (usable.empty()) return AddWorld();
    const GroupIterator group = usable[draw_.Below(static_cast<int>(usable.size()))];
    Resume(*group);
    const int what = draw_.Below(100);
    // Communicators that share resources share the flag that aborts, too.
    const bool may_abort = !options_.shares;
    if (what < 54) return Work(*group);
    // NCCL suspends no communicator that shares its memory.
    if (what < 60) return options_.shares ? Work(*group) : Suspend(*group);
    if (what < 70) return Split(*group);
    if (what < 79) return Shrink(group, may_abort && draw_.Chance(50));
    if (what < 84 && may_abort) return Abort(group);
    if (what < 90 && may_abort) {
      Revoke(group);
      if (group->is_revoked && draw_.Chance(40)) Shrink(group, false);
      return;  // it stays until it is its turn to be destroyed
    }
    // NCCL 2.30.7 takes the resources of a parent that has shared them before for ranks that were
    // in it, and not for new ones (init.cc, commAlloc): the socket of a proxy is then closed.
    if (what < 95) return options_.shares ? Work(*group) : Grow(*group);
    if (what < 97) return AddWorld();
    EndGroup(group);
  }

  CommunicatorConfig Config() {
    names_.push_back("elastic-" + std::to_string(step_));
    CommunicatorConfig config{.name = names_.back().c_str()};
    if (options_.shares) config.split_share = config.shrink_share = 1;
    return config;
  }
  int Place() const { return kFirstPlace + step_; }

  static bool Has(const std::vector<int>& ranks, int rank) {
    return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
  }
  // A part of them, at least one, and not all.
  std::vector<int> SomeOf(std::vector<int> ranks) {
    const int kept = 1 + draw_.Below(static_cast<int>(ranks.size()) - 1);
    while (static_cast<int>(ranks.size()) > kept)
      ranks.erase(ranks.begin() + draw_.Below(static_cast<int>(ranks.size())));
    return ranks;
  }
  // `communicator` is null in ranks that are no members.
  void Add(const std::vector<int>& members, Communicator communicator) {
    const auto own = std::find(members.begin(), members.end(), seat_.rank);
    groups_.push_back({members,
                       {.communicator = communicator,
                        .rank = static_cast<int>(own - members.begin()),
                        .ranks = static_cast<int>(members.size())}});
  }

  void AddWorld() {
    std::vector<int> all;
    for (int rank = 0; rank < options_.ranks; ++rank) all.push_back(rank);
    Add(all, JoinAll(Place(), Config()).communicator);
  }

  void Work(const Group& group) {
    std::vector<Operation> operations;
    for (int k = draw_.Below(8); k >= 0; --k)
      operations.push_back(draw_.AnOperation(
          {"allreduce", "allgather", "reducescatter", "reduce", "sendrecv"}, options_.bytes));
    const bool in_group = draw_.Chance(35), waits = draw_.Chance(50);
    if (group.own.communicator == nullptr) return;
    MakeAll(operations, group.own, in_group);
    if (waits) rank_.Synchronize();
  }

  void Split(const Group& group) {
    std::vector<int> parts[2];
    int color = kNoColor;
    for (const int member : group.members) {
      const int drawn = draw_.Chance(20) ? kNoColor : draw_.Below(2);
      if (drawn != kNoColor) parts[drawn].push_back(member);
      if (member == seat_.rank) color = drawn;
    }
    Communicator made = nullptr;
    CommunicatorConfig config = Config();
    if (group.own.communicator != nullptr)
      Require(
          NcclLibrary().CommSplit(group.own.communicator, color, group.own.rank, &made, &config),
          "ncclCommSplit");
    for (int part : {0, 1})
      if (!parts[part].empty()) Add(parts[part], part == color ? made : nullptr);
  }

  // All members but `missing` wait in AllReduces that do not end.
  void Interrupt(const Group& group, const std::vector<int>& missing) {
    const int operations = 1 + draw_.Below(3), wait_us = 1000 * draw_.Below(200);
    if (group.own.communicator == nullptr) return;
    const Operation probe{"allreduce", kProbeBytes};
    rank_.Make(probe, group.own);  // connects
    rank_.Synchronize();
    seat_.board.Meet(Place(), group.own.ranks);
    for (int k = 0; k < operations && !Has(missing, seat_.rank); ++k) {
      rank_.Make(probe, group.own);
      seat_.account.AddUnfinished();
    }
    usleep(wait_us);
  }

  // It holds no memory until it is resumed, which a later step does before it uses it.
  void Suspend(Group& group) {
    if (NcclLibrary().CommSuspend == nullptr) return Work(group);
    group.is_suspended = true;
    if (group.own.communicator == nullptr) return;
    rank_.Make({"allreduce", kProbeBytes}, group.own);  // connects
    rank_.Synchronize();
    Require(NcclLibrary().CommSuspend(group.own.communicator, kSuspendMemory), "ncclCommSuspend");
  }

  void Resume(Group& group) {
    if (group.is_suspended && group.own.communicator != nullptr)
      Require(NcclLibrary().CommResume(group.own.communicator), "ncclCommResume");
    group.is_suspended = false;
  }

  void Shrink(GroupIterator parent, bool aborts) {
    if (NcclLibrary().CommShrink == nullptr) return Work(*parent);
    const std::vector<int> excluded = SomeOf(parent->members);
    std::vector<int> left, excluded_here;
    for (size_t i = 0; i < parent->members.size(); ++i) {
      const bool is_excluded = Has(excluded, parent->members[i]);
      if (is_excluded) excluded_here.push_back(static_cast<int>(i));
      if (!is_excluded) left.push_back(parent->members[i]);
    }
    if (aborts) Interrupt(*parent, excluded);
    Communicator made = nullptr;
    CommunicatorConfig config = Config();
    if (parent->own.communicator != nullptr && Has(left, seat_.rank)) {
      if (!aborts) rank_.Synchronize();
      Require(NcclLibrary().CommShrink(parent->own.communicator, excluded_here.data(),
                                       static_cast<int>(excluded_here.size()), &made, &config,
                                       aborts ? kShrinkAbort : 0),
              "ncclCommShrink");
    }
    Add(left, made);
    // A shrink that aborts leaves no parent that could be destroyed: docs/kernel-timing.md.
    if (aborts) EndByAbort(parent);
  }

  void Abort(GroupIterator group) {
    Interrupt(*group, SomeOf(group->members));
    EndByAbort(group);
  }

  void Revoke(GroupIterator group) {
    if (NcclLibrary().CommRevoke == nullptr) return Work(*group);
    Interrupt(*group, SomeOf(group->members));
    if (group->own.communicator != nullptr) {
      Require(NcclLibrary().CommRevoke(group->own.communicator, 0), "ncclCommRevoke");
      rank_.Synchronize();
    }
    group->is_revoked = true;
  }

  // Grows a group without all ranks, if there is one.
  void Grow(const Group& drawn) {
    const Nccl& nccl = NcclLibrary();
    const auto partial = std::find_if(groups_.begin(), groups_.end(), [this](const Group& group) {
      return !group.is_revoked && static_cast<int>(group.members.size()) < options_.ranks;
    });
    if (nccl.CommGrow == nullptr || partial == groups_.end()) return Work(drawn);
    Group& group = *partial;
    Resume(group);
    std::vector<int> members = group.members;
    for (int rank = 0; rank < options_.ranks; ++rank)
      if (!Has(members, rank)) members.push_back(rank);
    const int ranks = static_cast<int>(members.size());
    const bool is_new = group.own.communicator == nullptr, is_root = !is_new && group.own.rank == 0;
    Communicator made = nullptr;
    CommunicatorConfig config = Config();
    UniqueId id;
    if (is_root) {
      Require(nccl.CommGetUniqueId(group.own.communicator, &id), "ncclCommGetUniqueId");
      seat_.board.Leave(Place(), id);
    }
    if (is_new) id = seat_.board.Await(Place());
    const auto own = std::find(members.begin(), members.end(), seat_.rank) - members.begin();
    Require(nccl.CommGrow(group.own.communicator, ranks, is_root || is_new ? &id : nullptr,
                          is_new ? static_cast<int>(own) : -1, &made, &config),
            "ncclCommGrow");
    Add(members, made);
  }

  void EndByAbort(GroupIterator group) {
    if (group->own.communicator != nullptr) {
      Require(NcclLibrary().CommAbort(group->own.communicator), "ncclCommAbort");
      rank_.Synchronize();
    }
    groups_.erase(group);
  }

  void EndGroup(GroupIterator group) {
    Resume(*group);
    const bool finalizes = !group->is_revoked && draw_.Chance(50);
    if (!options_.shares && draw_.Chance(20)) return EndByAbort(group);
    if (const Communicator communicator = group->own.communicator; communicator != nullptr) {
      rank_.Synchronize();
      if (finalizes) Require(NcclLibrary().CommFinalize(communicator), "ncclCommFinalize");
      Require(NcclLibrary().CommDestroy(communicator), "ncclCommDestroy");
      // The last rank of a process destroys for all of them, and waits for their devices. Where
      // resources are shared, other communicators keep these busy.
      if (options_.shares && !options_.processes) seat_.board.Meet(Place(), group->own.ranks);
    }
    groups_.erase(group);
  }

  const uint64_t seed_;
  Draw draw_;
  bool leaves_;
  int step_ = 0;
  std::list<Group> groups_;
  std::deque<std::string> names_;  // NCCL keeps pointers to them
};

}  // namespace

std::unique_ptr<Player> MakeElasticPlayer(const Seat& seat) {
  return std::make_unique<ElasticPlayer>(seat);
}

}  // namespace nccl_exporter::host_job
