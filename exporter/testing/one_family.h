// SPDX-License-Identifier: Apache-2.0
// OneFamily(), for tests of encoders: an exposition of one family with one series, whose labels are
// a, b and own.
#pragma once

#include <string>

#include "exporter/exposition/exposition.h"

namespace nccl_exporter::exporter {

inline Exposition OneFamily(std::string name, MetricType type, std::string unit, Series series,
                            std::string b = "2") {
  Exposition exposition;
  exposition.Add(Labels{{"a", "1"}, {"b", std::move(b)}});
  exposition.Add(Labels{{"own", "x"}});
  exposition.families.push_back({.name = std::move(name),
                                 .help = "Help.",
                                 .unit = std::move(unit),
                                 .type = type,
                                 .scale = {},
                                 .series = {series}});
  return exposition;
}

}  // namespace nccl_exporter::exporter
