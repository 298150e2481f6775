// SPDX-License-Identifier: Apache-2.0
// Guarantees that every snapshot keeps, whatever the bytes are.
#include "collector/reader/segment_fuzz_input.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include "collector/testing/memory_source.h"

namespace nccl_exporter::collector::fuzz {
namespace {

constexpr size_t kWordBytes = 8;
constexpr size_t kLimitBytes = 1 << 20;
constexpr size_t kLongestRun = 0xffff;
constexpr size_t kLongestGroup = 0xff;

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "segment_fuzz: broken promise: %s\n", promise);
  std::abort();
}

// Decodes and encodes again. If the result differs, the text was no UTF-8.
bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i]);
    const size_t length = lead < 0x80       ? 1
                          : lead >> 5 == 6  ? 2
                          : lead >> 4 == 14 ? 3
                          : lead >> 3 == 30 ? 4
                                            : 0;
    if (length == 0 || i + length > text.size()) return false;
    uint32_t code = length == 1 ? lead : lead & (0x7f >> length);
    for (size_t k = 1; k < length; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2) return false;
      code = code << 6 | (next & 0x3f);
    }
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < kLeast[length] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return false;
    i += length;
  }
  return true;
}

void CheckText(const std::string& text, size_t field_bytes) {
  Require(text.size() <= field_bytes, "a text is no longer than its field");
  Require(IsUtf8(text), "texts are UTF-8");
  Require(text.find('\0') == std::string::npos, "a text ends with its NUL");
}

void CheckOperation(const InFlightOperation& operation) {
  Require(static_cast<int>(operation.function) < kFunctionCount,
          "a function in flight is one of the vocabulary");
  Require(operation.parts_done <= operation.parts_announced,
          "no more parts are done than announced");
  Require(operation.start_realtime_ns <= kFuzzedMoment.realtime_ns,
          "nothing was called in the future");
  Require(operation.peer >= -1, "a peer is a rank or unknown");
}

void CheckFunction(const FunctionSnapshot& function) {
  uint64_t operations = 0;
  for (const SizeClassSnapshot& size : function.sizes) operations += size.operations;
  Require(function.completed <= operations, "no more operations are complete than were started");
  std::array<uint64_t, DurationBuckets::kCount> of_sizes{};
  bool is_split = false;
  for (const SizedDurations& sized : function.duration_by_size) {
    is_split = is_split || !sized.counts.empty();
    Require(sized.counts.empty() || sized.counts.size() == of_sizes.size(),
            "a histogram is whole or absent");
    for (size_t i = 0; i < sized.counts.size(); ++i) of_sizes[i] += sized.counts[i];
  }
  Require(!is_split || of_sizes == function.duration, "sizes add up to the function");
}

// Operations in flight are a lower bound: others may be unknown.
bool IsObservable(TimingSource source) { return source != TimingSource::kNone; }

void CheckCommunicator(const CommunicatorSnapshot& communicator) {
  CheckText(communicator.name, 128);
  CheckText(communicator.gpu_uuid, 64);
  CheckText(communicator.pci_bus_id, 64);
  for (size_t i = 0; i < kFunctionCount; ++i) CheckFunction(communicator.functions[i]);
  Require(communicator.completed_sequence <= communicator.started_sequence,
          "completed is at most started");
  Require(communicator.in_flight.size() <= layout::kInFlightEntries,
          "no more is in flight than the ring holds");
  Require(communicator.completion_is_known || communicator.in_flight.empty() ||
              IsObservable(communicator.timing_source),
          "in flight is told where it is known");
  Require(!communicator.is_closed || communicator.in_flight.empty(),
          "a finalized communicator has nothing in flight");
  for (const InFlightOperation& operation : communicator.in_flight) CheckOperation(operation);
  Require(communicator.timing_source < TimingSource::kCount,
          "the timing source is one of the vocabulary");
  Require(communicator.timing_reason < TimingReason::kCount,
          "the timing reason is one of the vocabulary");
  Require(communicator.api_version >= 0 && communicator.nccl_version >= 0,
          "versions are not negative");
  Require(communicator.gpu_index >= -1, "a GPU has an index or none is known");
  Require(communicator.created_realtime_ns <= kFuzzedMoment.realtime_ns,
          "nothing was created in the future");
  Require(communicator.last_progress_realtime_ns <= kFuzzedMoment.realtime_ns,
          "no progress is in the future");
  Require(!communicator.is_overflow || !communicator.has_identity,
          "the overflow slot has no identity");
}

void CheckProcess(const ProcessSnapshot& process, const ReadTerms& terms) {
  CheckText(process.host_name, 64);
  CheckText(process.executable, 64);
  CheckText(process.plugin_version, 32);
  Require(process.start_realtime_ns >= 0, "a process did not start before the epoch");
  Require(process.identity.size() <= layout::kIdentityPairs,
          "there are no more pairs than the header holds");
  std::set<std::string> keys;
  for (const auto& [key, value] : process.identity) {
    CheckText(key, 32);
    CheckText(value, 96);
    Require(!key.empty() && keys.insert(key).second, "keys are not empty, and each is there once");
  }
  const uint64_t most = std::min<uint64_t>(terms.communicator_limit, layout::kMaxSlots);
  Require(process.communicators.size() <= most, "there are no more communicators than allowed");
  std::set<uint32_t> slots;
  for (const CommunicatorSnapshot& communicator : process.communicators) {
    Require(slots.insert(communicator.slot).second, "each slot is there once");
    CheckCommunicator(communicator);
  }
}

}  // namespace

SegmentInput Expand(std::span<const uint8_t> input) {
  SegmentInput expanded{.bytes = {}, .terms = {.now = kFuzzedMoment}};
  if (input.empty()) return expanded;
  const uint8_t flags = input[0];
  input = input.subspan(1);
  if (flags & 2) expanded.terms.retention = std::chrono::seconds(1);
  if (flags & 4) expanded.terms.communicator_limit = 2;
  expanded.terms.splits_durations = (flags & 8) == 0;
  const auto append = [&](std::span<const uint8_t> bytes) {
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    expanded.bytes.insert(expanded.bytes.end(), first, first + bytes.size());
  };
  if (!(flags & 1)) return append(input), expanded;
  while (input.size() >= 3 && expanded.bytes.size() < kLimitBytes) {
    const size_t zeros = size_t{input[0]} << 8 | input[1];
    const size_t words = std::min<size_t>(input[2] * kWordBytes, input.size() - 3);
    expanded.bytes.resize(expanded.bytes.size() + zeros * kWordBytes);
    append(input.subspan(3, words));
    input = input.subspan(3 + words);
  }
  return expanded;
}

std::vector<uint8_t> Compact(std::span<const std::byte> segment) {
  std::vector<uint8_t> input{1};
  const size_t words = segment.size() / kWordBytes;
  const auto is_zero = [&](size_t word) {
    constexpr std::byte kZeros[kWordBytes]{};
    return std::memcmp(&segment[word * kWordBytes], kZeros, kWordBytes) == 0;
  };
  for (size_t word = 0; word < words;) {
    size_t zeros = 0;
    while (word + zeros < words && zeros < kLongestRun && is_zero(word + zeros)) ++zeros;
    word += zeros;
    size_t others = 0;
    while (word + others < words && others < kLongestGroup && !is_zero(word + others)) ++others;
    input.push_back(static_cast<uint8_t>(zeros >> 8));
    input.push_back(static_cast<uint8_t>(zeros));
    input.push_back(static_cast<uint8_t>(others));
    const auto* first = reinterpret_cast<const uint8_t*>(segment.data()) + word * kWordBytes;
    input.insert(input.end(), first, first + others * kWordBytes);
    word += others;
  }
  return input;
}

bool ReadAndCheck(const SegmentInput& input) {
  const SegmentRead read = ParseSegment(input.bytes, 0, input.terms);
  Require(!(read.process && read.fault), "there is a snapshot or a fault");
  if (read.fault) {
    Require(read.fault->error < SegmentError::kCount, "a fault is one of the vocabulary");
    CheckText(read.fault->detail, 4096);
  }
  if (read.process) CheckProcess(*read.process, input.terms);
  return read.process.has_value();
}

}  // namespace nccl_exporter::collector::fuzz
