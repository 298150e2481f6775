// SPDX-License-Identifier: Apache-2.0
// Contents of --web.config.file: TLS and passwords, in the schema of the Prometheus
// exporter-toolkit, without the keys that hardly anybody sets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "exporter/http/last_usable.h"

namespace nccl_exporter::exporter {

// A longer file is refused: a page of YAML is what anyone needs, and certificates some KiB each.
inline constexpr size_t kWebConfigLimitBytes = size_t{1} << 20;

// One check at this cost takes 4 s: a higher cost locks all users out.
inline constexpr int kMaxBcryptCost = 16;

enum class TlsVersion : uint8_t { kTls10, kTls11, kTls12, kTls13 };

// Paths are absolute or relative to the working directory.
struct TlsConfig {
  std::string cert_file;
  std::string key_file;
  std::string client_ca_file;     // empty: none
  bool verifies_clients = false;  // each needs a certificate of the CA; else none is asked for
  std::vector<std::string> client_allowed_sans;  // empty: any
  TlsVersion min_version = TlsVersion::kTls12;

  bool operator==(const TlsConfig&) const = default;
};

struct WebConfig {
  std::optional<TlsConfig> tls;
  std::map<std::string, std::string> users;  // name -> bcrypt hash; empty: nobody is asked
};

// Reads a configuration. Relative paths in it are relative to `directory`. Throws a
// std::runtime_error of one line. Files that it names are not looked at.
WebConfig ParseWebConfig(std::string_view yaml, const std::string& directory);

// A file as it was read.
struct FileText {
  std::string path;
  std::string text;
  std::string unreadable{};  // why it could not be read, one line

  bool operator==(const FileText&) const = default;
};
FileText ReadFileText(const std::string& path);

// The file at `path`. Whether there is TLS stays as it was at first, since a port cannot change its
// protocol.
class WebConfigFile : public LastUsable<FileText, WebConfig> {
 public:
  WebConfigFile(const std::string& path, std::string& error);
};

}  // namespace nccl_exporter::exporter
