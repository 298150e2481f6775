// SPDX-License-Identifier: Apache-2.0
// `promtool check metrics`, for tests of what is served.
#pragma once

#include <string>

namespace nccl_exporter {

// What promtool (of Debian's package prometheus) has to say of metrics in text 0.0.4; empty if it is content.
std::string PromtoolComplaints(const std::string& text);

}  // namespace nccl_exporter
