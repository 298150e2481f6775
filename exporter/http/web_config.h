// SPDX-License-Identifier: Apache-2.0
// Contents of --web.config.file: TLS, passwords and headers, in the schema of the Prometheus
// exporter-toolkit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nccl_exporter::exporter {

// A longer file is refused: a page of YAML is what anyone needs, and inline certificates some KiB
// each.
inline constexpr size_t kWebConfigLimitBytes = size_t{1} << 20;

// One check at this cost takes 4 s: a higher cost locks all users out.
inline constexpr int kMaxBcryptCost = 16;

enum class ClientAuth : uint8_t { kNone, kRequest, kRequireAny, kVerifyIfGiven, kRequireAndVerify };

enum class TlsVersion : uint8_t { kTls10, kTls11, kTls12, kTls13 };

// A PEM text: in a file, which is read again when it changes, or in the configuration itself.
struct PemSource {
  std::string file;  // absolute or relative to the working directory; empty: `inline_text`
  std::string inline_text;

  bool is_given() const { return !file.empty() || !inline_text.empty(); }
  bool operator==(const PemSource&) const = default;
};

struct TlsConfig {
  PemSource certificate;
  PemSource key;
  PemSource client_ca;
  ClientAuth client_auth = ClientAuth::kNone;
  std::vector<std::string> client_allowed_sans;  // empty: any
  TlsVersion min_version = TlsVersion::kTls12;
  TlsVersion max_version = TlsVersion::kTls13;
  std::vector<std::string> curves;  // by their names in Go; empty: GnuTLS' choice
  bool prefers_server_cipher_suites = true;

  bool operator==(const TlsConfig&) const = default;
};

struct WebConfig {
  std::optional<TlsConfig> tls;
  std::vector<std::pair<std::string, std::string>> headers;  // of every answer
  std::map<std::string, std::string> users;  // name -> bcrypt hash; empty: nobody is asked
};

// Reads a configuration. Relative paths in it are relative to `directory`. A fault is put into
// `error`, one line; then the result means nothing. Files that it names are not looked at.
WebConfig ParseWebConfig(std::string_view yaml, const std::string& directory, std::string& error);

// A file as it was read.
struct WebConfigText {
  std::string yaml;
  std::string unreadable;  // why it could not be read

  bool operator==(const WebConfigText&) const = default;
};
WebConfigText ReadWebConfigText(const std::string& path);

// Parses the text of a file; `error` begins with its path.
WebConfig ParseWebConfig(const WebConfigText& text, const std::string& path, std::string& error);

// The text of a PEM source; empty, and `error` set, where it cannot be read.
std::string ReadPem(const PemSource& source, std::string& error);

}  // namespace nccl_exporter::exporter
