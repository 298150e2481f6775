// SPDX-License-Identifier: Apache-2.0
// ExampleSnapshot() and ExampleBook(), a hand-written snapshot and its book for tests.
#pragma once

#include <memory>
#include <utility>

#include "collector/node_snapshot.h"
#include "exporter/testing/synthetic_node.h"
#include "exporter/ledger/book.h"

namespace nccl_exporter::exporter {

// A node with every metric and every state that an exposition can show: see
// exporter/series/testdata.
std::shared_ptr<const collector::NodeSnapshot> ExampleSnapshot();

// A book without counts.
inline Book BookOf(collector::NodeSnapshot snapshot) {
  return Book(std::make_shared<collector::NodeSnapshot>(std::move(snapshot)));
}

// The book of an ExampleSnapshot().
std::shared_ptr<const Book> ExampleBook();

}  // namespace nccl_exporter::exporter
