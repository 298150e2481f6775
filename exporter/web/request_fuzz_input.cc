// SPDX-License-Identifier: Apache-2.0
// Guarantees of the server and everything behind it, whatever bytes a client sends: it continues to
// serve, and each answer is one of its own.
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "exporter/http/http_server.h"
#include "exporter/http/web_guard.h"
#include "exporter/testing/example_snapshot.h"
#include "exporter/testing/http_client.h"
#include "exporter/testing/text_fuzz.h"
#include "exporter/web/web_pages.h"

namespace nccl_exporter::exporter::fuzz {
namespace {

void Require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "request_fuzz: broken promise: %s\n", promise);
  std::abort();
}

// A daemon without its collector. The file of its web configuration is removed at once; its content
// stays in force.
class Served {
 public:
  explicit Served(const std::string& web_config)
      : path_(Written(web_config)), file_(path_, error_) {
    unlink(path_.c_str());
    Require(error_.empty() && server_.Start({"127.0.0.1:0"}).empty(), "the server starts");
  }
  int port() const { return server_.ports()[0]; }

 private:
  static std::string Written(const std::string& web_config) {
    std::string path = (std::filesystem::temp_directory_path() / "request_fuzz.XXXXXX").string();
    const int file = mkstemp(path.data());
    Require(file >= 0 && write(file, web_config.data(), web_config.size()) ==
                             static_cast<ssize_t>(web_config.size()),
            "there is a temporary directory");
    close(file);
    return path;
  }

  const std::string path_;
  std::string error_;
  BookSource books_{ExampleBook};
  AnswerBudget budget_;
  ScrapePage scrape_page_{books_, budget_};
  NodeWatch history_{books_};
  WebPages pages_{
      books_, scrape_page_, history_, budget_, {.node_name = "node", .telemetry_path = "/metrics"}};
  WebConfigFile file_;
  const HttpHandler guard_ = WithPasswords(
      file_, [this](const HttpRequest& request) { return pages_.Answer(request); },
      [this](Refusal refusal) { scrape_page_.daemon().Count(refusal); });
  HttpServer server_{guard_, [this](Refusal refusal) { scrape_page_.daemon().Count(refusal); }};
};

// The whole answer for a client that sends nothing more.
std::string AnswerTo(std::string_view bytes, int port) {
  std::string answer;
  const int connection = Send(port, std::string(bytes));
  if (connection < 0) return answer;  // closed before all was sent
  shutdown(connection, SHUT_WR);
  std::array<char, 65536> part{};
  for (ssize_t got = 0; (got = recv(connection, part.data(), part.size(), 0)) > 0;) {
    answer.append(part.data(), static_cast<size_t>(got));
  }
  close(connection);
  return answer;
}

bool IsOurHeader(std::string_view line) {
  constexpr std::array<std::string_view, 15> kNames{"Allow",
                                                    "Cache-Control",
                                                    "Connection",
                                                    "Content-Encoding",
                                                    "Content-Length",
                                                    "Content-Type",
                                                    "Date",
                                                    "ETag",
                                                    "Referrer-Policy",
                                                    "Content-Security-Policy",
                                                    "Retry-After",
                                                    "Vary",
                                                    "Transfer-Encoding",
                                                    "WWW-Authenticate",
                                                    "X-Content-Type-Options"};
  const size_t colon = line.find(": ");
  return colon != std::string_view::npos &&
         std::ranges::find(kNames, line.substr(0, colon)) != kNames.end();
}

// The head of the first answer.
void CheckHead(std::string_view head) {
  constexpr std::array kStatuses{100, 200, 304, 400, 401, 404, 405,
                                 413, 414, 417, 431, 501, 503, 505};
  Require(head.starts_with("HTTP/1.1 ") || head.starts_with("HTTP/1.0 "),
          "an answer is one of HTTP/1");
  int status = 0;
  std::from_chars(head.data() + 9, head.data() + 12, status);
  Require(std::ranges::find(kStatuses, status) != kStatuses.end(),
          "an answer has a status that is foreseen");
  if (status == 100) return;
  for (size_t at = head.find("\r\n"); at != std::string_view::npos;) {
    head.remove_prefix(at + 2);
    at = head.find("\r\n");
    Require(IsOurHeader(head.substr(0, at)), "nobody else adds headers");
  }
}

}  // namespace

void CheckInput(std::string_view input) {
  static const Served everyone("{}");
  static const Served alice(
      "basic_auth_users: {alice: $2b$04$abcdefghijklmnopqrstuu2r9OfJnfCsdneAXAGHnS4UpFFP8WIrW}");
  const bool has_password = input.find("uthorization") != std::string_view::npos;
  const std::string answer = AnswerTo(input, (has_password ? alice : everyone).port());
  if (answer.empty()) return;
  const size_t end = answer.find("\r\n\r\n");
  Require(end != std::string::npos, "an answer has a whole head");
  CheckHead(std::string_view(answer).substr(0, end));
}

}  // namespace nccl_exporter::exporter::fuzz
