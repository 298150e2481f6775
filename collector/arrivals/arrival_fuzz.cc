// SPDX-License-Identifier: Apache-2.0
// Plays scripts drawn from a seed; says how much was read and compared, or which promise broke.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "collector/arrivals/arrival_fuzz_input.h"

int main(int count, char** arguments) {
  using namespace nccl_exporter::collector::fuzz;
  if (count != 3) return std::fputs("usage: arrival_fuzz SCRIPTS SEED\n", stderr), 2;
  const uint64_t scripts = std::strtoull(arguments[1], nullptr, 10);
  std::mt19937_64 random(std::strtoull(arguments[2], nullptr, 10));
  PlayedArrivals played;
  for (uint64_t i = 0; i < scripts; ++i) {
    std::vector<uint8_t> script(16 + random() % 1024);
    // Half of the scripts are honest: nothing is written over.
    const bool is_honest = random() % 2 == 0;
    for (uint8_t& byte : script) {
      do byte = static_cast<uint8_t>(random());
      while (is_honest && byte % 8 == 4);
    }
    const PlayedArrivals one = PlayAndCheck(script);
    played.operations += one.operations;
    played.compared += one.compared;
  }
  std::printf("%" PRIu64 " scripts, %" PRIu64 " operations read, %" PRIu64 " compared\n", scripts,
              played.operations, played.compared);
  return played.operations > scripts && played.compared > scripts
             ? 0
             : 1;  // else the scripts say nothing
}
