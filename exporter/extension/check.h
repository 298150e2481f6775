// SPDX-License-Identifier: Apache-2.0
// CheckExtension(), the conformance tests of `extension check`, and ClaimsOf(), for `extension
// list`. For the first thread of a program without others: each test is a process of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exporter/extension/extension_library.h"

namespace nccl_exporter::exporter {

// Makes the extension, or throws std::runtime_error.
using MakeExtension = std::function<std::unique_ptr<ExtensionLibrary>()>;

struct CheckResult {
  std::string test;
  std::string fault;  // empty: passed
};

// Claims of the first answer of CheckExtension(), made in a process of its own: as of
// ExtensionRound::Claims(). Throws std::runtime_error with why there are none.
std::string ClaimsOf(const MakeExtension& make);

// All tests in their order. A crash or a test that does not end within its time is a fault of that
// test alone.
std::vector<CheckResult> CheckExtension(const MakeExtension& make);

}  // namespace nccl_exporter::exporter
