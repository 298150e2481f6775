// SPDX-License-Identifier: Apache-2.0
// Mutates the segments of a corpus, from a seed, and reads each. Reports how many were read, or the
// broken guarantee.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "collector/reader/segment_fuzz_input.h"

namespace nccl_exporter::collector::fuzz {
namespace {

using Input = std::vector<uint8_t>;

std::vector<Input> Load(const std::filesystem::path& directory) {
  std::vector<Input> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Before expansion: shifts, cuts, repeats, so that whole groups move.
void MutateInput(Input& input, std::mt19937_64& random) {
  const size_t place = random() % input.size();
  switch (random() % 8) {
    case 0:
      input.resize(place + 1);
      break;
    case 1:
      input.erase(input.begin() + static_cast<ptrdiff_t>(place));
      if (input.empty()) input.push_back(0);
      break;
    case 2:
      input.insert(input.begin() + static_cast<ptrdiff_t>(place), static_cast<uint8_t>(random()));
      break;
    case 3:
      input[0] = static_cast<uint8_t>(random());
      break;
    default:
      input[place] = static_cast<uint8_t>(random());
      break;
  }
}

// After expansion: words, the places that steer the reader first.
void MutateWords(std::vector<std::byte>& bytes, std::mt19937_64& random) {
  if (bytes.size() < 8) return;
  constexpr uint64_t kEdges[] = {
      0, 1, 255, 4096, uint64_t{1} << 31, uint64_t{1} << 32, uint64_t{1} << 63, ~uint64_t{0}};
  const size_t words = bytes.size() / 8;
  const size_t place =
      random() % 4 == 0 ? random() % std::min<size_t>(words, 128) : random() % words;
  const uint64_t value = random() % 2 == 0 ? kEdges[random() % 8] : random() >> random() % 64;
  std::memcpy(&bytes[place * 8], &value, sizeof(value));
}

int Main(const std::filesystem::path& directory, uint64_t executions, uint64_t seed) {
  const std::vector<Input> corpus = Load(directory);
  if (corpus.size() < 10) return std::fprintf(stderr, "no corpus in %s\n", directory.c_str()), 1;
  uint64_t usable = 0;
  for (const Input& input : corpus) usable += ReadAndCheck(Expand(input));
  if (usable < corpus.size() / 2) return std::fprintf(stderr, "the corpus is not readable\n"), 1;
  std::mt19937_64 random(seed);
  usable = 0;
  for (uint64_t i = 0; i < executions; ++i) {
    Input input = corpus[random() % corpus.size()];
    if (random() % 2 == 0) MutateInput(input, random);
    SegmentInput expanded = Expand(input);
    for (uint64_t words = random() % 8; words != 0; --words) MutateWords(expanded.bytes, random);
    usable += ReadAndCheck(expanded);
  }
  std::printf("%" PRIu64 " segments read, %" PRIu64 " of them usable\n", executions, usable);
  return usable > executions / 10 ? 0
                                  : 1;  // else the mutations are too coarse to get past the header
}

}  // namespace
}  // namespace nccl_exporter::collector::fuzz

int main(int count, char** arguments) {
  if (count != 4) return std::fputs("usage: segment_fuzz CORPUS EXECUTIONS SEED\n", stderr), 2;
  return nccl_exporter::collector::fuzz::Main(arguments[1],
                                              std::strtoull(arguments[2], nullptr, 10),
                                              std::strtoull(arguments[3], nullptr, 10));
}
