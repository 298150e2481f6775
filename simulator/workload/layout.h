// SPDX-License-Identifier: Apache-2.0
// The parallel layouts: which communicators a way of training makes, and what it sends over them in
// a step.
#pragma once

#include <span>
#include <string_view>

#include "simulator/workload/layout_builder.h"

namespace nccl_exporter::sim {

struct Layout {
  std::string_view name;
  std::string_view help;
  void (*write)(LayoutBuilder& builder);
  bool has_variety;  // in every step, one more group of the seed's choice
};

// Its groups are the seed's choice, and not written by the layout.
inline constexpr std::string_view kRandomLayout = "random";

std::span<const Layout> Layouts();

// The layout of that name, or nullptr.
const Layout* FindLayout(std::string_view name);

}  // namespace nccl_exporter::sim
