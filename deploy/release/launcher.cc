// SPDX-License-Identifier: Apache-2.0
// First program of a release's daemon: static, so that it runs on any Linux. It starts the daemon
// with the loader and the libraries that lie beside it, and uses nothing of the system.
//
//   FOLDER/bin/NAME      this program
//   FOLDER/lib/NAME      link to the loader; the kernel names the process after it
//   FOLDER/lib/LIBRARY   each library, by the name that programs ask for
//   FOLDER/libexec/NAME  the daemon
//
// FOLDER may be anywhere: an ELF interpreter is an absolute path, and a script would need a shell.
#include <sys/auxv.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr int kCannotStart = 127;  // as a shell has it

// With links resolved. Where /proc is not mounted, the name that the kernel was given has to do.
std::string OwnPath() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  if (length > 0 && length < static_cast<ssize_t>(sizeof(path)))
    return std::string(path, static_cast<size_t>(length));
  const auto* const given = reinterpret_cast<const char*>(getauxval(AT_EXECFN));
  return given != nullptr && realpath(given, path) != nullptr ? path : "";
}

std::string Folder(const std::string& path) { return path.substr(0, path.rfind('/')); }

}  // namespace

int main(int argc, char** argv) {
  const std::string path = OwnPath();
  if (path.find('/') == std::string::npos) {
    std::fputs("nccl-exporter: cannot find its own folder: /proc is not mounted\n", stderr);
    return kCannotStart;
  }
  const std::string name = path.substr(path.rfind('/') + 1);
  const std::string folder = Folder(Folder(path));
  const std::string libraries = folder + "/lib";
  const std::string loader = libraries + '/' + name;
  const std::string program = folder + "/libexec/" + name;

  std::string given_name = argc > 0 ? argv[0] : name;
  // The cache of the system lists libraries of another libc.
  std::vector<std::string> words = {given_name, "--inhibit-cache", "--library-path", libraries,
                                    "--argv0",  given_name,        program};
  for (int i = 1; i < argc; ++i) words.emplace_back(argv[i]);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  execv(loader.c_str(), arguments.data());
  std::fprintf(stderr, "%s: cannot start %s: %s\n", name.c_str(), loader.c_str(),
               std::strerror(errno));
  return kCannotStart;
}
