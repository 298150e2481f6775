// SPDX-License-Identifier: Apache-2.0
// Names and addresses, by getaddrinfo().
#include "exporter/http/listening_sockets.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace nccl_exporter::exporter {
namespace {

union SocketAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
  sockaddr_un local;
  sockaddr_storage storage;
};

std::string ErrorText() { return std::strerror(errno); }

SocketAddress AddressOf(int socket) {
  SocketAddress address{};
  socklen_t size = sizeof address;
  getsockname(socket, &address.any, &size);
  return address;
}

int PortOf(const SocketAddress& address) {
  if (address.any.sa_family == AF_INET) return ntohs(address.v4.sin_port);
  return address.any.sa_family == AF_INET6 ? ntohs(address.v6.sin6_port) : 0;
}

// The address without its port, the same for IPv4 however it came in.
std::string HostText(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET) {
    return inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                     sizeof text);
  }
  if (address->sa_family != AF_INET6) return "unix";
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return inet_ntop(AF_INET, &v6.s6_addr[12], text, sizeof text);
  return inet_ntop(AF_INET6, &v6, text, sizeof text);
}

// A listening socket, or -1 with the reason in errno.
int Listen(const addrinfo& address) {
  const int listener =
      socket(address.ai_family, address.ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return -1;
  constexpr int kOn = 1;
  constexpr int kOff = 0;
  // A restart does not wait for the connections of the daemon before.
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &kOn, sizeof kOn);
  if (address.ai_family == AF_INET6)
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &kOff, sizeof kOff);
  if (bind(listener, address.ai_addr, address.ai_addrlen) == 0 && listen(listener, SOMAXCONN) == 0)
    return listener;
  const int reason = errno;
  close(listener);
  errno = reason;
  return -1;
}

}  // namespace

ListeningSockets::~ListeningSockets() { Close(); }

void ListeningSockets::Close() {
  for (const int socket : sockets_) close(socket);
  sockets_.clear();
  if (!path_.empty()) unlink(path_.c_str());
  path_.clear();
}

std::string ListeningSockets::BindPath(const std::string& path) {
  constexpr mode_t kForEverybody = 0666;
  SocketAddress address{};
  address.local.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.local.sun_path) return "the path is too long";
  std::memcpy(address.local.sun_path, path.data(), path.size());
  constexpr socklen_t kSize = sizeof address.local;
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0) return ErrorText();
  sockets_.push_back(listener);
  if (connect(listener, &address.any, kSize) == 0 || errno == EAGAIN)
    return "another daemon serves it";
  if (errno == ECONNREFUSED) unlink(path.c_str());  // of a daemon that was killed
  if (bind(listener, &address.any, kSize) != 0) return ErrorText();
  path_ = path;
  const bool listens = chmod(path.c_str(), kForEverybody) == 0 && listen(listener, SOMAXCONN) == 0;
  return listens ? "" : ErrorText();
}

std::string ListeningSockets::Bind(const std::vector<std::string>& addresses) {
  for (const std::string& address : addresses) {
    const bool is_path = address.find('/') != std::string::npos;
    const std::string error = is_path ? BindPath(address) : BindOne(address);
    if (error.empty()) continue;
    Close();
    return "cannot listen at " + address + ": " + error;
  }
  return "";
}

std::string ListeningSockets::BindOne(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos) return "no port";
  std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  // An address without a host means all addresses: IPv6 sockets take IPv4 as well.
  hints.ai_family = host.empty() ? AF_INET6 : AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  for (;; hints.ai_family = AF_INET) {
    addrinfo* found = nullptr;
    const int failure =
        getaddrinfo(host.empty() ? nullptr : host.c_str(), port.c_str(), &hints, &found);
    const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
    if (failure != 0) return failure == EAI_SYSTEM ? ErrorText() : gai_strerror(failure);
    const int listener = Listen(*found);
    if (listener >= 0) return sockets_.push_back(listener), "";
    const bool is_without_ipv6 = errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL;
    if (!host.empty() || hints.ai_family == AF_INET || !is_without_ipv6) return ErrorText();
  }
}

std::vector<int> ListeningSockets::ports() const {
  std::vector<int> ports;
  for (const int socket : sockets_) ports.push_back(PortOf(AddressOf(socket)));
  return ports;
}

std::vector<std::string> ListeningSockets::names() const {
  std::vector<std::string> names;
  for (const int socket : sockets_) {
    const SocketAddress address = AddressOf(socket);
    const std::string host = HostText(&address.any);
    if (address.any.sa_family == AF_UNIX) {
      names.emplace_back(address.local.sun_path);
    } else {
      const bool is_ipv6 = host.find(':') != std::string::npos;
      names.push_back((is_ipv6 ? '[' + host + ']' : host) + ':' + std::to_string(PortOf(address)));
    }
  }
  return names;
}

std::string ClientText(const sockaddr* address) {
  if (address->sa_family != AF_INET6) return HostText(address);
  sockaddr_in6 network = *reinterpret_cast<const sockaddr_in6*>(address);
  constexpr size_t kNetworkBytes = 8;
  if (!IN6_IS_ADDR_V4MAPPED(&network.sin6_addr))
    std::memset(&network.sin6_addr.s6_addr[kNetworkBytes], 0, kNetworkBytes);
  return HostText(reinterpret_cast<const sockaddr*>(&network));
}

}  // namespace nccl_exporter::exporter
