// SPDX-License-Identifier: Apache-2.0
#include "exporter/cli/client/http_config.h"

#include <gnutls/gnutls.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace nccl_exporter::exporter {
namespace {

[[noreturn]] void Refuse(const std::string& why) { throw std::invalid_argument(why); }

std::string TextOfFile(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kHttpConfigLimitBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  if (file.bad() || (!file.eof() && text.empty()))
    Refuse("cannot read " + path + (errno == 0 ? "" : std::string(": ") + std::strerror(errno)));
  if (text.size() > kHttpConfigLimitBytes) Refuse(path + " is longer than 1 MiB");
  return text;
}

void Check(const YAML::Node& node, const std::string& name,
           std::initializer_list<std::string_view> keys) {
  if (!node.IsMap()) Refuse(name + " has no keys");
  for (const auto& entry : node) {
    const auto key = entry.first.as<std::string>();
    if (std::ranges::find(keys, key) == keys.end())
      Refuse("'" + key + "' of " + name + " is not supported");
  }
}

std::string Text(const YAML::Node& node, const char* key) {
  return node[key].IsDefined() ? node[key].as<std::string>() : "";
}

std::string Base64(const std::string& text) {
  const gnutls_datum_t bytes{reinterpret_cast<unsigned char*>(const_cast<char*>(text.data())),
                             static_cast<unsigned>(text.size())};
  gnutls_datum_t encoded{};
  if (gnutls_base64_encode2(&bytes, &encoded) < 0) Refuse("the login cannot be encoded");
  std::string base64(reinterpret_cast<char*>(encoded.data), encoded.size);
  gnutls_free(encoded.data);
  return base64;
}

// Names and values frame a request, so that neither may have a line feed.
std::string Field(const std::string& name, const std::string& value) {
  const auto is_carried = [](char c) { return c >= ' ' && c < 0x7F; };
  if (name.empty() || name.find_first_of(" :") != std::string::npos ||
      !std::ranges::all_of(name, is_carried) || !std::ranges::all_of(value, is_carried))
    Refuse("a header or the login has a character that HTTP does not carry");
  return name + ": " + value + "\r\n";
}

class Reader {
 public:
  explicit Reader(std::filesystem::path directory) : directory_(std::move(directory)) {}

  HttpConfig Read(const YAML::Node& root) const {
    HttpConfig config;
    if (!root.IsDefined() || root.IsNull()) return config;
    Check(root, "the file", {"basic_auth", "authorization", "tls_config", "http_headers"});
    const YAML::Node basic = root["basic_auth"], token = root["authorization"];
    if (basic.IsDefined() && token.IsDefined()) Refuse("it has more than one login");
    if (basic.IsDefined()) {
      Check(basic, "basic_auth", {"username", "password", "password_file"});
      config.fields =
          Field("Authorization", "Basic " + Base64(Text(basic, "username") + ':' +
                                                   Secret(basic, "password", "password_file")));
    }
    if (token.IsDefined()) {
      Check(token, "authorization", {"type", "credentials", "credentials_file"});
      const std::string type = Text(token, "type");
      config.fields = Field("Authorization", (type.empty() ? "Bearer" : type) + ' ' +
                                                 Secret(token, "credentials", "credentials_file"));
    }
    if (root["tls_config"].IsDefined()) config.tls = Tls(root["tls_config"]);
    for (const auto& header : root["http_headers"]) {
      const auto name = header.first.as<std::string>();
      Check(header.second, "the header '" + name + "'", {"values"});
      const YAML::Node values = header.second["values"];
      if (!values.IsSequence()) Refuse("values of the header '" + name + "' is no list");
      for (const YAML::Node& value : values) config.fields += Field(name, value.as<std::string>());
    }
    return config;
  }

 private:
  std::string Path(const YAML::Node& node, const char* key) const {
    const std::string path = Text(node, key);
    return path.empty() ? "" : (directory_ / path).string();
  }
  // In the configuration or in a file, without the line feed at its end.
  std::string Secret(const YAML::Node& node, const char* key, const char* file) const {
    if (!node[file].IsDefined()) return Text(node, key);
    if (node[key].IsDefined()) Refuse("it has both '" + std::string(key) + "' and '" + file + "'");
    const std::string text = TextOfFile(Path(node, file));
    return text.substr(0, text.find_last_not_of(" \r\n\t") + 1);
  }

  TlsSettings Tls(const YAML::Node& node) const {
    Check(node, "tls_config",
          {"ca_file", "cert_file", "key_file", "server_name", "insecure_skip_verify"});
    TlsSettings tls{.ca_file = Path(node, "ca_file"),
                    .certificate_file = Path(node, "cert_file"),
                    .key_file = Path(node, "key_file"),
                    .server_name = Text(node, "server_name")};
    if (node["insecure_skip_verify"].IsDefined())
      tls.skips_verification = node["insecure_skip_verify"].as<bool>();
    if (tls.certificate_file.empty() != tls.key_file.empty())
      Refuse("cert_file and key_file of tls_config need each other");
    return tls;
  }

  const std::filesystem::path directory_;
};

}  // namespace

HttpConfig ReadHttpConfig(const std::string& path) {
  if (path.empty()) return {};
  try {
    return Reader(std::filesystem::path(path).parent_path()).Read(YAML::Load(TextOfFile(path)));
  } catch (const std::exception& wrong) {
    std::string fault = path + ": " + wrong.what();
    std::ranges::replace(fault, '\n', ' ');
    throw std::runtime_error(fault);
  }
}

}  // namespace nccl_exporter::exporter
