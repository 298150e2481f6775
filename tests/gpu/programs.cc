// SPDX-License-Identifier: Apache-2.0
// The library that has the programs. It is loaded by Python, and not a program: a program that is
// linked on Debian 12 needs glibc 2.34 for its very start, a library does not.
#include "tests/gpu/programs.h"

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <exception>
#include <string>

#include "tests/gpu/gpu.h"

namespace nccl_exporter {
namespace {

constexpr int kCannotRun = 77;

struct Program {
  const char* name;
  int (*run)(const nlohmann::json& options);
};
constexpr Program kPrograms[] = {{"facts", RunFacts},
                                 {"job", RunNcclJob},
                                 {"loop", RunLoop},
                                 {"cost", RunCost},
                                 {"overlap", RunOverlap}};

}  // namespace

void Print(const nlohmann::json& object) {
  const std::string line = "\n" + object.dump() + "\n";
  fflush(stdout);
  if (write(STDOUT_FILENO, line.data(), line.size()) < 0) perror("standard output");
}

int RunFacts(const nlohmann::json&) {
  std::string reason;
  const int gpus = CountGpus(&reason);
  if (gpus == 0) return printf("%s\n", reason.c_str()), kCannotRun;
  Print(DescribeMachine(gpus));
  return 0;
}

}  // namespace nccl_exporter

// The exit code of the program. Neither CUDA nor NCCL survives a fork, so a program that forks its
// ranks touches them in these alone.
extern "C" __attribute__((visibility("default"))) int RunProgram(const char* name,
                                                                 const char* options) {
  using namespace nccl_exporter;
  signal(SIGPIPE, SIG_IGN);
  for (const Program& program : kPrograms) {
    if (strcmp(program.name, name) != 0) continue;
    try {
      const int code = program.run(nlohmann::json::parse(options));
      fflush(nullptr);
      return code;
    } catch (const std::exception& error) {
      fprintf(stderr, "%s: %s\n", name, error.what());
      return 1;
    }
  }
  fprintf(stderr, "no program %s\n", name);
  return 2;
}
