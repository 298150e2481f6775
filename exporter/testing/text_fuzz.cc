// SPDX-License-Identifier: Apache-2.0
// Mutates the texts of a corpus, from a seed, and checks each.
#include "exporter/testing/text_fuzz.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

namespace nccl_exporter::exporter::fuzz {
namespace {

std::vector<std::string> Load(const std::filesystem::path& directory) {
  std::vector<std::string> corpus;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    std::ifstream file(entry.path(), std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Characters with a meaning in the format are more likely than others. Pieces of other texts are
// inserted.
void Mutate(std::string& input, const std::vector<std::string>& corpus, std::mt19937_64& random) {
  constexpr std::string_view kMeaningful = "\r\n\r\n  \t:/%?*#-,;=.q01[]{}'\"&|>$";
  const size_t place = random() % (input.size() + 1);
  const std::string& other = corpus[random() % corpus.size()];
  switch (random() % 4) {
    case 0:
      input.erase(place, random() % 8);
      break;
    case 1:
      input.insert(place, 1, kMeaningful[random() % kMeaningful.size()]);
      break;
    case 2:
      input.insert(place, 1, static_cast<char>(random()));
      break;
    default:
      input.insert(place, other.substr(random() % other.size(), random() % 40));
      break;
  }
}

int Main(const std::filesystem::path& directory, uint64_t executions, uint64_t seed) {
  const std::vector<std::string> corpus = Load(directory);
  if (corpus.size() < 3) return std::fprintf(stderr, "no corpus in %s\n", directory.c_str()), 1;
  for (const std::string& input : corpus) CheckInput(input);
  std::mt19937_64 random(seed);
  for (uint64_t i = 0; i < executions; ++i) {
    std::string input = corpus[random() % corpus.size()];
    for (uint64_t mutations = random() % 8 + 1; mutations != 0; --mutations)
      Mutate(input, corpus, random);
    CheckInput(input);
  }
  std::printf("%" PRIu64 " texts checked\n", executions);
  return 0;
}

}  // namespace
}  // namespace nccl_exporter::exporter::fuzz

int main(int count, char** arguments) {
  if (count != 4) return std::fputs("usage: CORPUS EXECUTIONS SEED\n", stderr), 2;
  return nccl_exporter::exporter::fuzz::Main(arguments[1], std::strtoull(arguments[2], nullptr, 10),
                                             std::strtoull(arguments[3], nullptr, 10));
}
