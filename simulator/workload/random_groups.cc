// SPDX-License-Identifier: Apache-2.0
#include "simulator/workload/random_groups.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "simulator/workload/hash_random.h"

namespace nccl_exporter::sim {
namespace {

constexpr uint64_t kMostCalls = 4;      // of one kind in a group
constexpr double kOctavesOfCount = 20;  // elements: 1 to a million
constexpr uint64_t kDatatypes10 = 10;   // the FP8 kinds came with 2.24

// Draws one number after the other.
class Draw {
 public:
  explicit Draw(uint64_t seed) : seed_(seed) {}
  uint64_t Below(uint64_t end) { return HashRandom(seed_, drawn_++) % end; }
  uint64_t Count() {
    const double octaves = kOctavesOfCount * Fraction(HashRandom(seed_, drawn_++));
    return static_cast<uint64_t>(std::exp2(octaves));
  }
  std::string_view Datatype() { return kDatatypes[Below(kDatatypes10)].name; }

 private:
  uint64_t seed_;
  uint64_t drawn_ = 0;
};

class GroupBuilder {
 public:
  GroupBuilder(const LayoutBuilder& builder, const CommunicatorFamily& family, uint64_t seed)
      : builder_(builder), family_(family), draw_(seed) {}

  std::vector<Call> Take() { return std::move(calls_); }
  Draw& draw() { return draw_; }

  void AddCollectives(uint64_t calls) {
    static constexpr std::array kKinds{Function::kAllReduce, Function::kAllGather,
                                       Function::kReduceScatter, Function::kReduce,
                                       Function::kBroadcast};
    for (uint64_t i = 0; i < calls; ++i) Add(kKinds[draw_.Below(kKinds.size())], draw_.Below(64));
  }
  void AddAlltoAll() { Add(Function::kAlltoAll, 0); }
  // Each of several roots once or more.
  void AddBroadcasts(uint64_t calls) {
    for (uint64_t i = 0; i < calls; ++i) Add(Function::kBroadcast, i);
  }
  // Every rank sends to the one that is `distance` ahead; distance 0 is a send to oneself.
  void AddExchanges(uint64_t exchanges) {
    for (uint64_t i = 0; i < exchanges; ++i) {
      const uint64_t distance = draw_.Below(3);
      const uint64_t count = draw_.Count();
      for (const int number : family_) {
        const int ranks = RanksOf(number);
        for (int rank = 0; rank < ranks && ranks > 1; ++rank) {
          calls_.push_back({.communicator = number,
                            .function = Function::kSend,
                            .count = count,
                            .root = rank,
                            .destination = (rank + static_cast<int>(distance)) % ranks});
        }
      }
    }
  }

 private:
  int RanksOf(int number) const {
    return builder_.communicators()[static_cast<size_t>(number)].ranks();
  }
  void Add(Function function, uint64_t root) {
    const uint64_t count = draw_.Count();
    const std::string_view datatype = draw_.Datatype();
    for (const int number : family_) {
      calls_.push_back({.communicator = number,
                        .function = function,
                        .count = count,
                        .datatype = datatype,
                        .root = static_cast<int>(root % static_cast<uint64_t>(RanksOf(number)))});
    }
  }

  const LayoutBuilder& builder_;
  const CommunicatorFamily& family_;
  Draw draw_;
  std::vector<Call> calls_;
};

}  // namespace

std::vector<CommunicatorFamily> AddRandomFamilies(LayoutBuilder& builder) {
  const int half = std::max(1, builder.shape().ranks() / 2);
  return {builder.AddWorld("world"), builder.AddNeighbours("half", half),
          builder.AddStrided("across", half)};
}

Group RandomGroup(const LayoutBuilder& builder, const std::vector<CommunicatorFamily>& families,
                  uint64_t seed) {
  enum Kind : uint64_t {
    kOneCollective,
    kCollectives,
    kAlltoAll,
    kExchanges,
    kBroadcasts,
    kMixed,
    kKinds
  };
  GroupBuilder group(builder, families[HashRandom(seed, 1) % families.size()], seed);
  const uint64_t kind = group.draw().Below(kKinds);
  const uint64_t calls = 1 + group.draw().Below(kMostCalls);
  if (kind == kOneCollective) group.AddCollectives(1);
  if (kind == kCollectives || kind == kMixed) group.AddCollectives(calls);
  if (kind == kAlltoAll) group.AddAlltoAll();
  if (kind == kBroadcasts) group.AddBroadcasts(1 + calls);
  if (kind == kExchanges || kind == kMixed) group.AddExchanges(calls);
  return {.calls = group.Take(), .overlaps_compute = group.draw().Below(2) == 0};
}

}  // namespace nccl_exporter::sim
