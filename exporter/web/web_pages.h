// SPDX-License-Identifier: Apache-2.0
// The paths of the web server, and what answers each.
#pragma once

#include <functional>
#include <string>

#include "exporter/findings/node_watch.h"
#include "exporter/http/http_server.h"
#include "exporter/ledger/book_source.h"
#include "exporter/trace/trace_page.h"
#include "exporter/web/node_api.h"
#include "exporter/web/page_assets.h"
#include "exporter/web/scrape_page.h"

namespace nccl_exporter::exporter {

class WebPages {
 public:
  // All outlive this object. `trace`: null if traces are not served.
  WebPages(BookSource& books, ScrapePage& scrape_page, const NodeWatch& watch, AnswerBudget& budget,
           DaemonFacts facts, TracePage* trace = nullptr);

  HttpResponse Answer(const HttpRequest& request);

  // Frees memory that answers of before still take, though no request gets them any more. False if
  // there is none. Any thread.
  bool GiveWay() { return api_.GiveWay(); }

  // The findings alone, for commands on this node.
  HttpResponse AnswerFindings(const HttpRequest& request);

  // Health and readiness, which say nothing about jobs; 404 for all other paths.
  HttpResponse AnswerHealth(const HttpRequest& request) const;

 private:
  BookSource& books_;
  ScrapePage& scrape_page_;
  const std::string telemetry_path_;
  const std::function<std::string()> fault_;
  const PageAssets assets_;
  NodeApi api_;
  TracePage* const trace_;
};

}  // namespace nccl_exporter::exporter
