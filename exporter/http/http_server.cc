// SPDX-License-Identifier: Apache-2.0
// HTTP by libmicrohttpd: it accepts, reads requests and sends answers, in a thread for each
// connection.
#include "exporter/http/http_server.h"

#include <gnutls/abstract.h>
#include <gnutls/gnutls.h>
#include <microhttpd.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <utility>

#include "exporter/http/tls_context.h"

namespace nccl_exporter::exporter {
namespace {

// An answer is handed over in parts of this size, and its time is looked at between them.
constexpr size_t kPartBytes = 16384;
// Stack of a connection's thread: a TLS handshake takes the most, some 30 KB. Only what is touched
// is memory.
constexpr size_t kStackBytes = size_t{512} << 10;
// Longest time that a stop waits for answers in progress: well within the 30 s that Kubernetes
// gives.
constexpr std::chrono::seconds kDrainLimit{5};
// The library's own limit stands behind ours, for those that have given way and are about to go.
constexpr unsigned kLibraryConnectionLimit = 2 * kConnectionLimit;

HttpResponse Answer(const HttpHandler& handler, const HttpRequest& request) {
  try {
    return handler(request);
  } catch (const std::exception& error) {  // the library is C: nothing may be thrown through it
    spdlog::error("no answer to {}: {}", request.path, error.what());
    return TextResponse(500, std::string("Internal error: ") + error.what() + '\n');
  }
}

// For calls from the library's C frames, which no exception may cross: where memory is short, the
// request or the connection is given up. Logging does not throw.
template <typename Result, typename Call>
Result WithoutExceptions(Result otherwise, Call call) noexcept {
  try {
    return call();
  } catch (const std::exception& error) {
    spdlog::error("a connection is given up: {}", error.what());
  } catch (...) {
    spdlog::error("a connection is given up");
  }
  return otherwise;
}

// From its request line to the end of its answer.
struct RequestInProgress {
  size_t url_bytes = 0;  // path and query as they came
  // By its length, or by an encoded zero in path or query: the library ends the path there.
  bool is_ambiguous = false;
  bool is_announced = false;
  bool is_answered = false;
  bool is_given_up = false;  // because there was no memory
};

// Calls `visit` with the name and the value of each header, or of each parameter of the query,
// which the library has decoded. False if memory is short.
template <typename Visit>
bool VisitValues(MHD_Connection* connection, MHD_ValueKind kind, Visit visit) {
  struct Visitor {
    Visit& visit;
    bool is_complete = true;
  } visitor{visit};
  constexpr MHD_KeyValueIterator call = [](void* self, MHD_ValueKind, const char* name,
                                           const char* value) {
    auto& of = *static_cast<Visitor*>(self);
    of.is_complete = WithoutExceptions(false, [&] {
      return of.visit(name, std::string_view(value == nullptr ? "" : value)), true;
    });
    return of.is_complete ? MHD_YES : MHD_NO;
  };
  MHD_get_connection_values(connection, kind, call, &visitor);
  return visitor.is_complete;
}

// A header that we know, several of a name joined by commas.
void TakeHeader(const char* name, std::string_view text, HttpRequest& request) {
  const std::pair<const char*, std::string*> known[]{
      {"Accept", &request.accept},
      {"Accept-Encoding", &request.accept_encoding},
      {"X-Prometheus-Scrape-Timeout-Seconds", &request.scrape_timeout},
      {"If-None-Match", &request.if_none_match},
      {"Authorization", &request.authorization},
      {"Host", &request.host}};
  for (const auto& [known_name, joined] : known) {
    if (strcasecmp(name, known_name) == 0)
      *joined += joined->empty() ? text : ',' + std::string(text);
  }
}

// Whether the length of the body depends on who reads the headers: several Content-Length, a list
// of them, or one beside Transfer-Encoding. A proxy and we would then see different requests
// (RFC 9112, 6.3).
bool HasAmbiguousLength(MHD_Connection* connection) {
  size_t lengths = 0;
  VisitValues(connection, MHD_HEADER_KIND, [&](const char* name, std::string_view text) {
    if (strcasecmp(name, "Transfer-Encoding") == 0) ++lengths;
    if (strcasecmp(name, "Content-Length") == 0)
      lengths += text.find(',') == std::string_view::npos ? 1 : 2;
  });
  return lengths > 1;
}

// Takes the authority from a target in absolute form (http://host:port/path): leaves the path, and
// returns host and port.
std::string TakeAuthority(std::string& path) {
  constexpr std::string_view kSeparator = "://";
  const size_t separator = path.find(kSeparator);
  if (path.starts_with('/') || separator == std::string::npos) return "";
  const std::string scheme = path.substr(0, separator);
  if (strcasecmp(scheme.c_str(), "http") != 0 && strcasecmp(scheme.c_str(), "https") != 0)
    return "";
  const size_t begin = separator + kSeparator.size();
  const size_t end = std::min(path.find('/', begin), path.size());
  std::string authority = path.substr(begin, end - begin);
  path = end == path.size() ? "/" : path.substr(end);
  return authority;
}

// An answer while it is sent.
struct Body {
  HttpResponse response;
  OpenConnections& all;
  OpenConnection& connection;

  static ssize_t Read(void* self, uint64_t place, char* part, size_t size) {
    Body& body = *static_cast<Body*>(self);
    body.all.OnSent(body.connection);
    const std::string_view rest = body.response.bytes().substr(place, size);
    std::memcpy(part, rest.data(), rest.size());
    return static_cast<ssize_t>(rest.size());
  }
  static void Free(void* self) { delete static_cast<Body*>(self); }
};

void AddHeaders(MHD_Response* answer, const HttpResponse& response) {
  MHD_add_response_header(answer, "Content-Type", response.content_type.c_str());
  MHD_add_response_header(answer, "X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : response.headers)
    MHD_add_response_header(answer, name.c_str(), value.c_str());
}

// Callback of MHD_OPTION_HTTPS_CERT_CALLBACK2, without which there is no TLS. It gives no
// certificate: sessions get theirs by TlsContext.
int NoCertificate(gnutls_session_t, const gnutls_cert_retr_st*, gnutls_pcert_st**, unsigned*,
                  gnutls_ocsp_data_st**, unsigned*, gnutls_privkey_t*, unsigned*) {
  return -1;
}

OpenConnection* ConnectionOf(MHD_Connection* connection) {
  const MHD_ConnectionInfo* const place =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  return static_cast<OpenConnection*>(place->socket_context);
}

int SocketOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

}  // namespace

// Callbacks of the library.
struct HttpServer::Calls {
  // One for each socket. Without the library's time limit (MHD_OPTION_CONNECTION_TIMEOUT), which
  // bounds the silence between two bytes, not a request or an answer as a whole.
  static MHD_Daemon* StartAt(int socket, HttpServer* self) {
    constexpr unsigned kFlags = MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION |
                                MHD_USE_POLL | MHD_USE_ITC;
    return MHD_start_daemon(self->tls_ == nullptr ? kFlags : kFlags | MHD_USE_TLS, 0, OnAccept,
                            self, OnRequest, self, MHD_OPTION_LISTEN_SOCKET, socket,  //
                            MHD_OPTION_NOTIFY_CONNECTION, OnConnection, self,         //
                            MHD_OPTION_URI_LOG_CALLBACK, OnRequestLine, self,         //
                            MHD_OPTION_NOTIFY_COMPLETED, OnCompleted, self,           //
                            MHD_OPTION_CONNECTION_LIMIT, kLibraryConnectionLimit,     //
                            MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestBufferBytes,  //
                            MHD_OPTION_THREAD_STACK_SIZE, kStackBytes,                //
                            MHD_OPTION_STRICT_FOR_CLIENT, 1,                          //
                            MHD_OPTION_HTTPS_CERT_CALLBACK2, &NoCertificate,  // ignored without TLS
                            MHD_OPTION_END);
  }

  static MHD_Result OnAccept(void* self, const sockaddr* address, socklen_t) {
    return WithoutExceptions(MHD_NO, [&] {
      return static_cast<HttpServer*>(self)->open_.MakeRoom(ClientText(address)) ? MHD_YES : MHD_NO;
    });
  }

  static void OnConnection(void* self, MHD_Connection* connection, void** place,
                           MHD_ConnectionNotificationCode what) {
    auto& server = *static_cast<HttpServer*>(self);
    auto* open = static_cast<OpenConnection*>(*place);
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
      open = WithoutExceptions<OpenConnection*>(nullptr, [&] { return &Add(server, connection); });
      *place = open;
      if (open == nullptr) Cut(connection);
    } else if (open != nullptr) {
      WithoutExceptions(0, [&] { return server.open_.Remove(*open), 0; });
    }
  }

  // The library does not let us refuse a connection that it has accepted: without its socket it
  // ends by itself.
  static void Cut(MHD_Connection* connection) { ::shutdown(SocketOf(connection), SHUT_RDWR); }

  static OpenConnection& Add(HttpServer& server, MHD_Connection* connection) {
    const sockaddr* const address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
    std::shared_ptr<const void> terms;
    if (server.tls_ != nullptr) {
      auto* const session = static_cast<gnutls_session_t>(
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session);
      terms = server.tls_->Prepare(session);
    }
    return server.open_.Add(SocketOf(connection), ClientText(address), std::move(terms));
  }

  static void* OnRequestLine(void*, const char* url, MHD_Connection*) {
    const std::string_view target = url == nullptr ? "" : url;
    return new (std::nothrow) RequestInProgress{
        .url_bytes = target.size(), .is_ambiguous = target.find("%00") != std::string_view::npos};
  }

  // Called when the headers are in, for every part of a body that we have no use for, and at the
  // end.
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* path,
                              const char* method, const char*, const char*, size_t* body_bytes,
                              void** place) {
    if (*place == nullptr || ConnectionOf(connection) == nullptr)
      return MHD_NO;  // no memory for it
    auto& request = *static_cast<RequestInProgress*>(*place);
    auto& server = *static_cast<HttpServer*>(self);
    // Before the body, whose end is not certain. The library closes a connection that is answered
    // here.
    if (!std::exchange(request.is_announced, true)) {
      request.is_ambiguous |= HasAmbiguousLength(connection);
      if (!request.is_ambiguous) return MHD_YES;
    } else if (std::exchange(*body_bytes, 0) != 0) {
      return MHD_YES;
    }
    return WithoutExceptions(MHD_NO,
                             [&] { return Serve(server, connection, path, method, request); });
  }

  static MHD_Result Serve(HttpServer& server, MHD_Connection* connection, const char* path,
                          std::string_view method, RequestInProgress& request) {
    OpenConnection& open = *ConnectionOf(connection);
    if (!server.open_.BeginAnswer(open)) return MHD_NO;
    request.is_answered = true;
    std::unique_ptr<Body> body;
    try {
      body = std::make_unique<Body>(
          Body{AnswerWithinLimits(server, connection, path, method, request), server.open_, open});
    } catch (...) {
      request.is_given_up = true;
      throw;
    }
    const HttpResponse& response = body->response;
    server.open_.BeginSending(open);
    MHD_Response* const answer = MHD_create_response_from_callback(
        response.bytes().size(), kPartBytes, Body::Read, body.get(), Body::Free);
    if (answer == nullptr) return MHD_NO;
    AddHeaders(answer, response);
    const auto status = static_cast<unsigned>(response.status);
    body.release();
    const MHD_Result is_queued = MHD_queue_response(connection, status, answer);
    MHD_destroy_response(answer);
    return is_queued;
  }

  static HttpResponse AnswerWithinLimits(HttpServer& server, MHD_Connection* connection,
                                         const char* path, std::string_view method,
                                         const RequestInProgress& in_progress) {
    if (in_progress.is_ambiguous) {
      server.on_refusal_(Refusal::kAmbiguousRequest);
      HttpResponse response = TextResponse(400, "Ambiguous request\n");
      response.headers = {{"Connection", "close"}};
      return response;
    }
    HttpRequest request{.path = path, .accept = {}, .accept_encoding = {}};
    const std::string authority = TakeAuthority(request.path);
    OpenConnection& open = *ConnectionOf(connection);
    request.client = open.address;
    request.on_check = [&server, &open](bool is_checked) {
      server.open_.SetChecked(open, is_checked);
    };
    size_t header_bytes = 0;
    const bool is_complete = VisitValues(connection, MHD_HEADER_KIND,
                                         [&](const char* name, std::string_view text) {
                                           header_bytes += std::strlen(name) + text.size();
                                           TakeHeader(name, text, request);
                                         }) &&
                             VisitValues(connection, MHD_GET_ARGUMENT_KIND,
                                         [&](const char* name, std::string_view text) {
                                           request.query.emplace_back(name, text);
                                         });
    if (!authority.empty()) request.host = authority;  // RFC 9112, 3.2.2
    if (!is_complete) throw std::bad_alloc();  // not answered as if it had come without them
    const bool is_url_too_long = in_progress.url_bytes > kUrlLimitBytes;
    if (is_url_too_long || header_bytes > kHeadersLimitBytes) {
      server.on_refusal_(Refusal::kRequestTooLarge);
      return is_url_too_long ? TextResponse(414, "URL too long\n")
                             : TextResponse(431, "Headers too large\n");
    }
    if (method == "GET" || method == "HEAD") return Answer(server.handler_, request);
    HttpResponse response = TextResponse(405, "Method not allowed\n");
    response.headers = {{"Allow", "GET, HEAD"}};
    return response;
  }

  // The end of every request that got as far as its request line, answered by us, by the library,
  // or not at all.
  static void OnCompleted(void* self, MHD_Connection* connection, void** place,
                          MHD_RequestTerminationCode outcome) {
    const std::unique_ptr<RequestInProgress> request(static_cast<RequestInProgress*>(*place));
    *place = nullptr;
    OpenConnections& open = static_cast<HttpServer*>(self)->open_;
    OpenConnection* const of = ConnectionOf(connection);
    if (request == nullptr || of == nullptr) return;
    WithoutExceptions(0, [&] { return Complete(open, *of, *request, connection, outcome), 0; });
  }

  static void Complete(OpenConnections& open, OpenConnection& of, const RequestInProgress& request,
                       MHD_Connection* connection, MHD_RequestTerminationCode outcome) {
    const bool is_taken = outcome == MHD_REQUEST_TERMINATED_COMPLETED_OK;
    if (request.is_answered) return open.EndAnswer(of, is_taken || request.is_given_up);
    const MHD_ConnectionInfo* const status =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_HTTP_STATUS);
    const unsigned code = status == nullptr ? 0 : status->http_status;
    const bool is_too_large =
        code == MHD_HTTP_URI_TOO_LONG || code == MHD_HTTP_REQUEST_HEADER_FIELDS_TOO_LARGE;
    open.EndUnanswered(of, is_too_large ? Refusal::kRequestTooLarge : Refusal::kUnreadableRequest);
  }
};

HttpServer::HttpServer(HttpHandler handler, RefusalCounter on_refusal)
    : handler_(std::move(handler)), on_refusal_(std::move(on_refusal)) {}

HttpServer::~HttpServer() { Stop(); }

std::string HttpServer::Start(const std::vector<std::string>& addresses, TlsContext* tls) {
  const std::string error = listening_.Bind(addresses);
  if (!error.empty()) return error;
  tls_ = tls;
  for (const int socket : listening_.sockets()) {
    MHD_Daemon* const daemon = Calls::StartAt(socket, this);
    if (daemon == nullptr) return Stop(), "the HTTP library does not start";
    daemons_.push_back(daemon);
  }
  return "";
}

void HttpServer::Stop() {
  // Before MHD_stop_daemon(), which would close the sockets, and cut answers short.
  for (MHD_Daemon* const daemon : daemons_) MHD_quiesce_daemon(daemon);
  if (!daemons_.empty()) open_.Stop(kDrainLimit);
  for (MHD_Daemon* const daemon : daemons_) MHD_stop_daemon(daemon);
  daemons_.clear();
  listening_.Close();
}

}  // namespace nccl_exporter::exporter
