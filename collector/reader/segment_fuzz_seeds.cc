// SPDX-License-Identifier: Apache-2.0
// Writes the corpus of the segment fuzzer: segments of the writer for layout 1, and segments of the
// real plugin, which are named on the command line.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "collector/reader/segment_fuzz_input.h"
#include "collector/testing/segment_writer_v1.h"

namespace nccl_exporter::collector::fuzz {
namespace {

void Write(const std::filesystem::path& path, std::span<const std::byte> segment) {
  const std::vector<uint8_t> input = Compact(segment);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(input.data()),
             static_cast<std::streamsize>(input.size()));
}

// Fields that identify the machine where the segment was made.
void Anonymise(std::string& segment) {
  constexpr size_t kPid = 48;
  constexpr size_t kUid = 56;
  constexpr size_t kHostName = 128;
  constexpr size_t kHostNameBytes = 64;
  if (segment.size() < SegmentWriterV1::kHeaderBytes) return;
  segment.replace(kPid, 8, 8, '\1');
  segment.replace(kUid, 8, 8, '\0');
  segment.replace(kHostName, kHostNameBytes, std::string("node").append(kHostNameBytes - 4, '\0'));
}

ProcessV1 AProcess() {
  return {.pid = 7,
          .start_realtime_ns = 1'600'000'000'000'000'000,
          .start_monotonic_ns = 1,
          .plugin_version = "1.0",
          .host_name = "node\xc3\xa9",
          .executable = "python\xff",
          .identity = {{"RANK", "3"}, {"POD_NAME", "trainer-0"}, {"RANK", "again"}},
          .losses = {1, 2, 3}};
}

SegmentWriterV1 Busy(size_t slots, uint64_t state, uint64_t timing_source) {
  SegmentWriterV1 writer(slots);
  writer.Put(AProcess());
  for (size_t slot = 0; slot < slots; ++slot) {
    writer.Put(slot,
               CommunicatorV1{.state = state,
                              .id = slot,
                              .ranks = 8,
                              .timing_source = timing_source,
                              .closed_monotonic_ns = state == 3 ? uint64_t{4'999'500'000'000} : 0,
                              .name = "dp"});
    writer.Put(slot, slot % 11,
               FunctionV1{.calls = 1, .operations = {3, 2}, .completed = 4, .duration = {0, 4}});
    for (uint64_t ticket = 510; ticket < 516; ++ticket) {
      writer.Put(slot, InFlightV1{.ticket = ticket,
                                  .function = ticket % 12,
                                  .start_ns = ticket,
                                  .parts_announced = 2,
                                  .parts_done = ticket % 3,
                                  .last_part_ns = 4'999'000'000'000,
                                  .peer_plus_1 = ticket % 2});
    }
  }
  writer.Publish();
  return writer;
}

void WriteAll(const std::filesystem::path& directory) {
  SegmentWriterV1 starting(1);
  starting.Put(AProcess());
  Write(directory / "starting", starting.bytes());
  starting.Publish();
  Write(directory / "empty", starting.bytes());
  for (uint64_t state = 0; state <= 4; ++state) {
    for (uint64_t source = 0; source <= 4; source += state == 2 ? 1 : 4) {
      Write(directory / ("state_" + std::to_string(state) + "_source_" + std::to_string(source)),
            Busy(2, state, source).bytes());
    }
  }
  Write(directory / "four_slots", Busy(4, 2, 1).bytes());
  SegmentWriterV1 later_minor(2, SegmentWriterV1::kHeaderBytes + 64,
                              SegmentWriterV1::kSlotBytes + 128);
  later_minor.Put(AProcess());
  later_minor.Put(0, CommunicatorV1{.name = "later"});
  later_minor.Publish();
  Write(directory / "later_minor", later_minor.bytes());
}

}  // namespace
}  // namespace nccl_exporter::collector::fuzz

int main(int count, char** arguments) {
  using namespace nccl_exporter::collector::fuzz;
  if (count < 2) return std::fputs("usage: segment_fuzz_seeds DIRECTORY [SEGMENT...]\n", stderr), 2;
  const std::filesystem::path directory = arguments[1];
  WriteAll(directory);
  for (int i = 2; i < count; ++i) {
    std::ifstream file(arguments[i], std::ios::binary);
    std::string segment{std::istreambuf_iterator<char>(file), {}};
    Anonymise(segment);
    Write(directory / ("plugin_" + std::to_string(i - 2)), std::as_bytes(std::span(segment)));
  }
  return 0;
}
