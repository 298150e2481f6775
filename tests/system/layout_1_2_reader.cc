// SPDX-License-Identifier: Apache-2.0
#include "tests/system/layout_1_2_reader.h"

#include <array>
#include <cstdio>
#include <cstring>

namespace nccl_exporter {
namespace {

using nlohmann::json;

// Numbers that the daemon of 1.2 checks (collector/reader/segment_header.cc of that version).
constexpr uint64_t kMajor = 1;
constexpr uint64_t kHeaderBytes = 8192;
constexpr uint64_t kHeaderLimitBytes = 65536;
constexpr uint64_t kSlotBytes = 110592;
constexpr uint64_t kSlotLimitBytes = 131072;
constexpr uint64_t kMaxSlots = 4096;
constexpr uint64_t kIdentityPairs = 32;

// Where it finds what it serves (proto/shm_layout.h of that version).
constexpr uint64_t kLossesAt = 256, kLosses = 28;
constexpr uint64_t kFunctionsAt = 384, kFunctionBytes = 3904;
constexpr uint64_t kInFlightAt = 43328, kInFlightEntries = 512, kInFlightBytes = 64;
constexpr uint64_t kDurationBuckets = 242, kBandwidthBuckets = 178;
constexpr uint64_t kStateLive = 2;

constexpr std::array kFunctions{"Broadcast", "Reduce",   "AllGather", "ReduceScatter",
                                "AllReduce", "AlltoAll", "Gather",    "Scatter",
                                "Send",      "Recv",     "Other"};
constexpr std::array kSizeClasses{"0", "4096", "65536", "1048576", "16777216", "268435456"};
constexpr std::array kTimingSources{"none", "kernel", "kernel_cpu", "proxy"};

}  // namespace

uint64_t Layout12Reader::Word(uint64_t offset) const {
  uint64_t word = 0;
  std::memcpy(&word, bytes_.substr(offset, sizeof(word)).data(), sizeof(word));
  return word;
}

std::string Layout12Reader::Refusal() const {
  if (bytes_.size() < kHeaderBytes) return "truncated";
  if (bytes_.compare(8, 8, "NCCLSEG1") != 0) return "magic";
  if (Word(0) >> 32 != kMajor) return "major";
  const uint64_t header_bytes = Word(16), slot_bytes = Word(24), slots = Word(32),
                 file_bytes = Word(40);
  if (header_bytes < kHeaderBytes || header_bytes > kHeaderLimitBytes || header_bytes % 8 != 0)
    return "header_bytes";
  if (slot_bytes < kSlotBytes || slot_bytes > kSlotLimitBytes || slot_bytes % 8 != 0)
    return "slot_bytes";
  if (slots < 1 || slots > kMaxSlots) return "slot_count";
  if (file_bytes != header_bytes + slots * slot_bytes) return "file_bytes";
  if (Word(80) > kIdentityPairs) return "identity_count";
  return bytes_.size() < file_bytes ? "truncated" : "";
}

json Layout12Reader::NonZero(uint64_t offset, uint64_t words) const {
  json counts = json::object();
  for (uint64_t i = 0; i < words; ++i) {
    if (const uint64_t count = Word(offset + 8 * i); count != 0) counts[std::to_string(i)] = count;
  }
  return counts;
}

json Layout12Reader::Losses() const { return NonZero(kLossesAt, kLosses); }

json Layout12Reader::Counts(uint64_t block) const {
  json sizes = json::object();
  uint64_t busy_ns = 0;
  for (uint64_t i = 0; i < kSizeClasses.size(); ++i) {
    const auto word = [&](uint64_t offset) { return Word(block + offset + 8 * i); };
    if (word(64) == 0) continue;
    sizes[kSizeClasses[i]] = {{"operations", word(64)},
                              {"bytes", word(128)},
                              {"timed_operations", word(192)},
                              {"timed_bytes", word(256)},
                              {"busy_ns", word(320)}};
    busy_ns += word(320);
  }
  return {{"calls", Word(block)},
          {"sizes", std::move(sizes)},
          {"completed", Word(block + 384)},
          {"bandwidth_sum_kib", Word(block + 400)},
          {"duration", NonZero(block + 448, kDurationBuckets)},
          {"duration_sum_ns", busy_ns},
          {"bandwidth", NonZero(block + 2432, kBandwidthBuckets)}};
}

json Layout12Reader::Functions(uint64_t slot) const {
  json functions = json::object();
  for (uint64_t i = 0; i < kFunctions.size(); ++i) {
    json counts = Counts(slot + kFunctionsAt + i * kFunctionBytes);
    if (counts["calls"] != 0 || !counts["sizes"].empty())
      functions[kFunctions[i]] = std::move(counts);
  }
  return functions;
}

json Layout12Reader::Communicators() const {
  json communicators = json::array();
  for (uint64_t i = 0; i + 1 < Word(32); ++i) {
    const uint64_t slot = Word(16) + i * Word(24);
    if ((Word(slot) & 0xff) != kStateLive) continue;
    char id[17];
    std::snprintf(id, sizeof(id), "%016lx", Word(slot + 8));
    json in_flight = json::array();
    for (uint64_t entry = 0; entry < kInFlightEntries; ++entry) {
      const uint64_t at = slot + kInFlightAt + entry * kInFlightBytes;
      if (Word(at) != 0) in_flight.push_back(kFunctions.at(Word(at + 8) & 0xff));
    }
    communicators.push_back({{"id", id},
                             {"rank", Word(slot + 24)},
                             {"ranks", Word(slot + 16)},
                             {"nodes", Word(slot + 32)},
                             {"name", bytes_.c_str() + slot + 128},
                             {"timing_source", kTimingSources.at(Word(slot + 64))},
                             {"in_flight", std::move(in_flight)},
                             {"functions", Functions(slot)}});
  }
  return communicators;
}

}  // namespace nccl_exporter
