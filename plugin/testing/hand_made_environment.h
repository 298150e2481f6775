// SPDX-License-Identifier: Apache-2.0
// Environment variables of a test, for functions that read them by a function like getenv.
#pragma once

#include <map>
#include <string>
#include <utility>

namespace nccl_exporter::plugin {

class HandMadeEnvironment {
 public:
  // Replaces all of them.
  static void Set(std::map<std::string, std::string> variables) {
    variables_ = std::move(variables);
  }

  // Valid until the next Set().
  static const char* Get(const char* name) {
    const auto found = variables_.find(name);
    return found == variables_.end() ? nullptr : found->second.c_str();
  }

 private:
  static inline std::map<std::string, std::string> variables_;
};

}  // namespace nccl_exporter::plugin
