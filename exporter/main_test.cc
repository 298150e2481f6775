// SPDX-License-Identifier: Apache-2.0
// The daemon as a whole, from its command line to its exit code.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "exporter/testing/child_process.h"
#include "exporter/testing/eventually.h"
#include "exporter/testing/http_client.h"
#include "exporter/testing/promtool.h"
#include "exporter/testing/test_certificates.h"

namespace nccl_exporter::exporter {
namespace {

constexpr const char* kDaemon = "exporter/nccl-exporter";

std::string TemporaryDirectory() { return std::getenv("TEST_TMPDIR"); }

// A daemon on a free port that watches an empty directory.
class Daemon {
 public:
  explicit Daemon(const std::vector<std::string>& more_flags = {}) : process_(Command(more_flags)) {
    port_ = NextPort();
  }

  // That of the next line of the log, which says where the daemon listens.
  int NextPort() {
    const std::string line = process_.ReadErrorLine();
    const std::string before_port = "(port ";
    const size_t at = line.find(before_port);
    EXPECT_NE(at, std::string::npos) << line;
    return at == std::string::npos ? 0 : std::stoi(line.substr(at + before_port.size()));
  }

  ChildProcess& process() { return process_; }
  int port() const { return port_; }

 private:
  static std::vector<std::string> Command(const std::vector<std::string>& more_flags) {
    std::vector<std::string> command{kDaemon, "--web.listen-address=127.0.0.1:0"};
    if (more_flags.empty()) command.push_back("--segment.dir=" + TemporaryDirectory());
    command.insert(command.end(), more_flags.begin(), more_flags.end());
    return command;
  }

  ChildProcess process_;
  int port_ = 0;
};

// Expects one line on standard error.
std::string OnlyLine(const std::string& text) {
  EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
  return text;
}

TEST(MainTest, ServesUntilSigterm) {
  Daemon daemon;
  EXPECT_EQ(Get(daemon.port(), "/-/healthy").status, 200);
  const HttpAnswer scrape = Get(daemon.port(), "/metrics");
  EXPECT_EQ(scrape.status, 200);
  EXPECT_EQ(PromtoolComplaints(scrape.body), "");
  EXPECT_THAT(scrape.body, testing::HasSubstr("\nnccl_exporter_segments{state=\"live\"} 0\n"));
  EXPECT_EQ(Get(daemon.port(), "/-/ready").status, 200) << "a scrape takes a snapshot";
  daemon.process().Signal(SIGTERM);
  EXPECT_EQ(daemon.process().Wait(), 0);
  EXPECT_THAT(daemon.process().ErrorOutput(), testing::HasSubstr("stopping on SIGTERM"));
  EXPECT_EQ(daemon.process().Output(), "");
}

TEST(MainTest, StopsOnSigint) {
  Daemon daemon;
  daemon.process().Signal(SIGINT);
  EXPECT_EQ(daemon.process().Wait(), 0);
}

// A FIFO in place of standard error, with a reader that stops when it has the port.
class UnreadLog {
 public:
  explicit UnreadLog(const std::string& path) {
    EXPECT_EQ(mkfifo(path.c_str(), 0600), 0);
    fifo_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_GE(fifo_, 0);
  }
  ~UnreadLog() { close(fifo_); }
  UnreadLog(const UnreadLog&) = delete;
  UnreadLog& operator=(const UnreadLog&) = delete;

  int ReadPort() const {
    const std::string before_port = "(port ";
    std::string text;
    char next = 0;
    while (text.find(')') == std::string::npos && read(fifo_, &next, 1) == 1) text += next;
    const size_t at = text.find(before_port);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + before_port.size()));
  }
  void Fill() const {
    fcntl(fifo_, F_SETFL, O_NONBLOCK);
    while (write(fifo_, "\n", 1) > 0) {
    }
  }

 private:
  int fifo_ = -1;
};

// A container runtime's copier or journald that is stuck. The daemon logged with locks held that
// every scrape needs.
TEST(MainTest, ALogThatNobodyReadsStopsNothing) {
  const std::string directory = TemporaryDirectory() + "/unread-log";
  std::filesystem::create_directory(directory);
  const UnreadLog log(directory + "/log");
  ChildProcess daemon({"/bin/sh", "-c", R"(exec "$@" 2>"$0")", directory + "/log", kDaemon,
                       "--web.listen-address=127.0.0.1:0", "--log.level=debug",
                       "--segment.dir=" + directory});
  const int port = log.ReadPort();
  log.Fill();
  std::ofstream(directory + "/wrong.seg") << std::string(100000, 'x');  // a line of the log
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Get(port, "/metrics").status, 200);
    EXPECT_EQ(Get(port, "/api/v1/findings").status, 200);
  }
  EXPECT_TRUE(Eventually([&] { return Get(port, "/-/ready").status == 503; }));
  EXPECT_THAT(Get(port, "/-/ready").body, testing::StartsWith("The log is blocked"));
  EXPECT_EQ(Get(port, "/-/healthy").status, 200);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.Wait(), 0);
  std::filesystem::remove_all(directory);  // it is below that of other tests
}

// A terminal that closes, a logrotate script and a peer that goes away send these by habit.
TEST(MainTest, LivesOnAfterSignalsThatAskForNoEnd) {
  Daemon daemon;
  daemon.process().ReadErrorLine();  // watching
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2}) {
    daemon.process().Signal(signal);
    EXPECT_THAT(daemon.process().ReadErrorLine(),
                testing::AllOf(testing::HasSubstr(std::string("SIG") + sigabbrev_np(signal)),
                               testing::HasSubstr("nothing to reload")));
  }
  daemon.process().Signal(SIGPIPE);
  EXPECT_EQ(Get(daemon.port(), "/-/healthy").status, 200);
  daemon.process().Signal(SIGTERM);
  EXPECT_EQ(daemon.process().Wait(), 0);
}

TEST(MainTest, SighupReadsTheWebConfigurationAndSaysHowThatWent) {
  const std::string path = TemporaryDirectory() + "/reload.yml";
  std::ofstream(path) << "basic_auth_users: {}";
  Daemon daemon({"--segment.dir=" + TemporaryDirectory(), "--web.config.file=" + path});
  daemon.process().ReadErrorLine();  // watching
  daemon.process().Signal(SIGHUP);
  EXPECT_THAT(daemon.process().ReadErrorLine(), testing::HasSubstr("in force as they are"));
  std::ofstream(path) << "nonsense: 1";
  for (int i = 0; i < 2; ++i) {
    daemon.process().Signal(SIGHUP);
    std::string line = daemon.process().ReadErrorLine();
    if (i == 0) {
      EXPECT_THAT(line, testing::HasSubstr("keeping the previous web configuration"));
      line = daemon.process().ReadErrorLine();
    }
    EXPECT_THAT(line, testing::AllOf(testing::HasSubstr("SIGHUP"), testing::HasSubstr("nonsense")))
        << "again, though the file was seen before";
  }
  EXPECT_EQ(Get(daemon.port(), "/-/healthy").status, 200);
}

TEST(MainTest, TellsSystemdThatItIsReadyAndLives) {
  // A path would be too long.
  const std::string name = "@nccl-exporter-main-test-" + std::to_string(getpid());
  sockaddr_un address{.sun_family = AF_UNIX, .sun_path = {}};
  name.copy(address.sun_path, name.size());
  address.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size());
  const int systemd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(bind(systemd, reinterpret_cast<const sockaddr*>(&address), size), 0);
  const auto receive = [&] {
    char text[100];
    const ssize_t received = recv(systemd, text, sizeof text, 0);
    return received < 0 ? "" : std::string(text, static_cast<size_t>(received));
  };
  setenv("NOTIFY_SOCKET", name.c_str(), 1);
  setenv("WATCHDOG_USEC", "20000", 1);
  Daemon daemon;
  unsetenv("NOTIFY_SOCKET");
  unsetenv("WATCHDOG_USEC");
  EXPECT_EQ(receive(), "READY=1");
  EXPECT_EQ(receive(), "WATCHDOG=1");
  EXPECT_EQ(receive(), "WATCHDOG=1");
  daemon.process().Signal(SIGTERM);
  std::string last = receive();
  while (last == "WATCHDOG=1") last = receive();
  EXPECT_EQ(last, "STOPPING=1");
  EXPECT_EQ(daemon.process().Wait(), 0);
  close(systemd);
}

TEST(MainTest, WaitsForASegmentDirectoryThatDoesNotExistYet) {
  const std::string directory = TemporaryDirectory() + "/not-yet";
  Daemon daemon({"--segment.dir=" + directory, "--log.format=json"});
  EXPECT_THAT(daemon.process().ReadErrorLine(),
              testing::HasSubstr("\"msg\":\"waiting for segment directory " + directory + "\"}"));
  EXPECT_EQ(Get(daemon.port(), "/metrics").status, 200);
  std::filesystem::create_directory(directory);
  std::ofstream(directory + "/wrong.seg") << "this is no segment";
  EXPECT_THAT(Get(daemon.port(), "/metrics").body,
              testing::HasSubstr("\nnccl_exporter_segments{state=\"unusable\"} 1\n"));
}

TEST(MainTest, AsksForAPasswordWhereTheWebConfigurationHasOne) {
  const std::string path = TemporaryDirectory() + "/web.yml";
  std::ofstream(path)
      << "basic_auth_users: {a: $2b$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.}";
  Daemon daemon({"--segment.dir=" + TemporaryDirectory(), "--web.config.file=" + path});
  EXPECT_EQ(Get(daemon.port(), "/metrics").status, 401);
  EXPECT_EQ(Get(daemon.port(), "/-/healthy").status, 401);
}

// Probes of Kubernetes have neither the authority's certificate nor a password.
TEST(MainTest, AnswersProbesAtTheHealthAddressWithTlsPasswordsAndBoth) {
  const std::string directory = TemporaryDirectory();
  const TestAuthority::Issued issued = TestAuthority().Issue({"IP:127.0.0.1"});
  std::ofstream(directory + "/probe.pem") << issued.certificate;
  std::ofstream(directory + "/probe.key") << issued.key;
  const std::string tls = "tls_server_config: {cert_file: probe.pem, key_file: probe.key}\n";
  const std::string users =
      "basic_auth_users: {a: $2b$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.}\n";
  for (const std::string& security : {std::string(), tls, users, tls + users}) {
    std::ofstream(directory + "/probed.yml") << security;
    Daemon daemon({"--segment.dir=" + directory, "--web.config.file=" + directory + "/probed.yml",
                   "--web.health-address=127.0.0.1:0"});
    const int health_port = daemon.NextPort();
    EXPECT_EQ(Get(health_port, "/-/healthy").status, 200) << security;
    EXPECT_TRUE(Eventually([&] { return Get(health_port, "/-/ready").status == 200; })) << security;
    EXPECT_EQ(Get(daemon.port(), "/-/healthy").status == 200, security.empty()) << security;
    for (const char* path : {"/metrics", "/", "/api/v1/node", "/debug/inflight"})
      EXPECT_EQ(Get(health_port, path).status, 404) << path;
    daemon.process().Signal(SIGTERM);
    EXPECT_EQ(daemon.process().Wait(), 0);
  }
}

TEST(MainTest, AHealthAddressInUseIsARuntimeFailure) {
  const Daemon first;
  const std::string address = "127.0.0.1:" + std::to_string(first.port());
  ChildProcess second(
      {kDaemon, "--web.listen-address=127.0.0.1:0", "--web.health-address=" + address});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(OnlyLine(second.ErrorOutput()), testing::HasSubstr(address));
}

TEST(MainTest, AWrongWebConfigurationIsARuntimeFailure) {
  const std::string path = TemporaryDirectory() + "/wrong.yml";
  std::ofstream(path) << "nonsense: 1\n";
  ChildProcess daemon({kDaemon, "--web.listen-address=127.0.0.1:0", "--web.config.file=" + path});
  EXPECT_EQ(daemon.Wait(), 1);
  EXPECT_EQ(OnlyLine(daemon.ErrorOutput()),
            "nccl-exporter: " + path + ": line 1: unknown key 'nonsense' in the file\n");
}

TEST(MainTest, AnUnusableCertificateIsARuntimeFailure) {
  const std::string path = TemporaryDirectory() + "/tls.yml";
  std::ofstream(path) << "tls_server_config: {cert_file: missing.pem, key_file: missing.key}\n";
  ChildProcess daemon({kDaemon, "--web.listen-address=127.0.0.1:0", "--web.config.file=" + path});
  EXPECT_EQ(daemon.Wait(), 1);
  EXPECT_EQ(OnlyLine(daemon.ErrorOutput()),
            "nccl-exporter: " + TemporaryDirectory() + "/missing.pem: No such file or directory\n");
}

TEST(MainTest, APolicyThatLeavesNoVersionOfTlsIsARuntimeFailure) {
  const std::string config = TemporaryDirectory() + "/tls13.yml";
  const std::string policy = TemporaryDirectory() + "/gnutls.config";
  const TestAuthority authority;
  const TestAuthority::Issued issued = authority.Issue({"IP:127.0.0.1"});
  std::ofstream(TemporaryDirectory() + "/policy.pem") << issued.certificate;
  std::ofstream(TemporaryDirectory() + "/policy.key") << issued.key;
  std::ofstream(config) << "tls_server_config: {cert_file: policy.pem, key_file: policy.key, "
                           "min_version: TLS13}\n";
  std::ofstream(policy) << "[overrides]\ndisabled-version = tls1.3\n";
  ChildProcess daemon({kDaemon, "--web.listen-address=127.0.0.1:0", "--web.config.file=" + config},
                      {{"GNUTLS_SYSTEM_PRIORITY_FILE", policy}});
  EXPECT_EQ(daemon.Wait(), 1);
  EXPECT_THAT(OnlyLine(daemon.ErrorOutput()),
              testing::StartsWith("nccl-exporter: TLS versions from min_version on: "));
}

TEST(MainTest, ServesLessOnRequestAndWarnsOfWhatTheRulesNeed) {
  Daemon daemon(
      {"--segment.dir=" + TemporaryDirectory(), "--metrics.disable=nccl_exporter_user_segment*"});
  EXPECT_THAT(daemon.process().ReadErrorLine(), testing::HasSubstr("watching"));
  EXPECT_THAT(daemon.process().ReadErrorLine(),
              testing::AllOf(
                  testing::HasSubstr("level=warn"),
                  testing::HasSubstr("that the shipped rules need: nccl_exporter_user_segment")));
  const std::string page = Get(daemon.port(), "/metrics").body;
  EXPECT_THAT(page, testing::Not(testing::HasSubstr("nccl_exporter_user_segment")));
  EXPECT_THAT(page, testing::HasSubstr("\nnccl_exporter_limit{limit=\"series\"} 20000\n"));
}

TEST(MainTest, APortInUseIsARuntimeFailure) {
  const Daemon first;
  ChildProcess second({kDaemon, "--web.listen-address=127.0.0.1:" + std::to_string(first.port())});
  EXPECT_EQ(second.Wait(), 1);
  EXPECT_THAT(OnlyLine(second.ErrorOutput()), testing::HasSubstr(std::to_string(first.port())));
}

TEST(MainTest, BadUsageEndsWithCodeTwo) {
  for (const char* flag :
       {"--nonsense", "--web.telemetry-path=", "--segment.retention=soon", "--log.level"}) {
    ChildProcess daemon({kDaemon, flag});
    EXPECT_EQ(daemon.Wait(), 2) << flag;
    EXPECT_THAT(OnlyLine(daemon.ErrorOutput()), testing::StartsWith("nccl-exporter: ")) << flag;
  }
}

TEST(MainTest, HelpAndVersionGoToStandardOutput) {
  ChildProcess version({kDaemon, "--version"});
  EXPECT_EQ(version.Wait(), 0);
  EXPECT_EQ(version.Output(), "nccl-exporter 0.1.0\n");
  ChildProcess help({kDaemon, "--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.Output(), testing::HasSubstr("--segment.retention"));
  EXPECT_EQ(help.ErrorOutput(), "");
}

TEST(MainTest, InflightLooksIntoTheGivenDirectories) {
  const std::string directory = TemporaryDirectory() + "/inflight";
  std::filesystem::create_directory(directory);
  std::ofstream(directory + "/wrong.seg") << "this is no segment";
  ChildProcess in_flight({kDaemon, "--segment.dir=" + directory, "inflight"});
  EXPECT_EQ(in_flight.Wait(), 0);
  const std::string text = in_flight.Output();
  EXPECT_THAT(text, testing::HasSubstr(": 0 communicators, 0 with operations in flight\n"));
  EXPECT_THAT(text, testing::HasSubstr("\n1 files cannot be read as segments"));
  EXPECT_TRUE(std::filesystem::exists(directory + "/wrong.seg"));
}

// Regression: with a password the commands lost the daemon's judgement.
TEST(MainTest, CommandsGetTheFindingsOfADaemonWithAPasswordByItsSocket) {
  const std::string directory = TemporaryDirectory() + "/with-socket";
  std::filesystem::create_directory(directory);
  // The path of a socket has at most 107 bytes.
  std::string folder = "/tmp/findings.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string config = directory + "/web.yml", socket = folder + "/s";
  std::ofstream(config)
      << "basic_auth_users: {a: $2b$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.}";
  Daemon daemon(
      {"--segment.dir=" + directory, "--web.config.file=" + config, "--findings.socket=" + socket});
  EXPECT_EQ(Get(daemon.port(), "/api/v1/findings").status, 401);
  ChildProcess inflight(
      {kDaemon, "inflight", "--segment.dir=" + directory, "--daemon=unix:" + socket});
  EXPECT_EQ(inflight.Wait(), 0);
  EXPECT_THAT(inflight.Output(), testing::HasSubstr("Judged by the daemon since"));
  struct stat status {};
  ASSERT_EQ(::stat(socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777u, 0666u);
  Daemon second({"--segment.dir=" + directory, "--findings.socket=" + socket});
  second.process().ReadErrorLine();  // watching
  EXPECT_THAT(second.process().ReadErrorLine(), testing::HasSubstr("another daemon serves it"));
  daemon.process().Signal(SIGKILL);
  daemon.process().Wait();
  Daemon third({"--segment.dir=" + directory, "--findings.socket=" + socket});
  third.process().Signal(SIGTERM);
  EXPECT_EQ(third.process().Wait(), 0);
  EXPECT_FALSE(std::filesystem::exists(socket)) << "the third took the place of the first";
  std::filesystem::remove_all(folder);
}

TEST(MainTest, CommandsGetTheFindingsOfADaemonWithTlsByItsSocket) {
  const std::string directory = TemporaryDirectory() + "/with-tls";
  std::filesystem::create_directory(directory);
  std::string folder = "/tmp/findings.XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string config = directory + "/web.yml", socket = folder + "/s";
  const TestAuthority::Issued issued = TestAuthority().Issue({"IP:127.0.0.1"});
  std::ofstream(directory + "/web.pem") << issued.certificate;
  std::ofstream(directory + "/web.key") << issued.key;
  const std::string tls = "tls_server_config: {cert_file: web.pem, key_file: web.key}\n";
  const std::string users =
      "basic_auth_users: {a: $2b$04$abcdefghijklmnopqrstuuN6tPGcMNGYMDEjNzaPYtKCRf9Kvxvn.}\n";
  for (const std::string& security : {users, tls, tls + users}) {
    std::ofstream(config) << security;
    Daemon daemon({"--segment.dir=" + directory, "--web.config.file=" + config,
                   "--findings.socket=" + socket});
    EXPECT_NE(Get(daemon.port(), "/api/v1/findings").status, 200) << security;
    for (const std::vector<std::string>& tool :
         std::vector<std::vector<std::string>>{{"inflight"}, {"top", "--once"}}) {
      std::vector<std::string> command{kDaemon, "--segment.dir=" + directory};
      command.insert(command.end(), tool.begin(), tool.end());
      command.push_back("--daemon=unix:" + socket);
      ChildProcess process(command);
      EXPECT_EQ(process.Wait(), 0) << tool[0];
      EXPECT_THAT(process.Output(), testing::HasSubstr("Judged by the daemon since"))
          << tool[0] << ' ' << security;
    }
  }
  std::filesystem::remove_all(folder);
}

TEST(MainTest, ToolsFailWhereADirectoryCannotBeRead) {
  const std::string no_directory = TemporaryDirectory() + "/no-directory";
  std::ofstream{no_directory};
  for (const std::vector<std::string>& tool :
       std::vector<std::vector<std::string>>{{"inflight"}, {"top", "--once"}}) {
    std::vector<std::string> command{kDaemon, "--segment.dir=" + no_directory};
    command.insert(command.end(), tool.begin(), tool.end());
    ChildProcess process(command);
    EXPECT_EQ(process.Wait(), 1) << tool[0];
    EXPECT_EQ(OnlyLine(process.ErrorOutput()),
              "nccl-exporter: cannot read " + no_directory + ": Not a directory\n");
    EXPECT_EQ(process.Output(), "") << tool[0];
  }
}

// A job may have no process yet, but a name that is misspelt has never any. Of the directories that
// are watched by default one may be absent.
TEST(MainTest, ToolsFailWhereNoDirectoryExists) {
  const std::string absent = TemporaryDirectory() + "/absent";
  const std::string present = TemporaryDirectory() + "/present";
  std::filesystem::create_directory(present);
  for (const std::vector<std::string>& tool :
       std::vector<std::vector<std::string>>{{"inflight"}, {"top", "--once"}}) {
    std::vector<std::string> command{kDaemon, "--segment.dir=" + absent};
    command.insert(command.end(), tool.begin(), tool.end());
    ChildProcess process(command);
    EXPECT_EQ(process.Wait(), 1) << tool[0];
    EXPECT_EQ(OnlyLine(process.ErrorOutput()),
              "nccl-exporter: cannot read " + absent + ": No such file or directory\n");
    EXPECT_EQ(process.Output(), "") << tool[0];
    command.insert(command.begin() + 1, "--segment.dir=" + present);
    ChildProcess with_one(command);
    EXPECT_EQ(with_one.Wait(), 0) << with_one.AllOutput();
  }
}

TEST(MainTest, FlagsOfACommandMayFollowItAndSlipsAreAnswered) {
  const std::string directory = TemporaryDirectory() + "/after";
  std::filesystem::create_directory(directory);
  for (const std::string command : {"inflight", "top"}) {
    ChildProcess after({kDaemon, command, "--json", "--segment.dir=" + directory});
    EXPECT_EQ(after.Wait(), 0) << after.AllOutput();
    EXPECT_THAT(after.Output(), testing::AllOf(testing::StartsWith("{\"api\":\"v1\","),
                                               testing::HasSubstr("\"findings\":[]"),
                                               testing::HasSubstr("\"judged\":{\"by\":"),
                                               testing::HasSubstr("\"communicators\":[]")));
  }
  ChildProcess slip({kDaemon, "tpo"});
  EXPECT_EQ(slip.Wait(), 2);
  EXPECT_EQ(OnlyLine(slip.ErrorOutput()),
            "nccl-exporter: there is no command 'tpo'; did you mean 'top'? (see nccl-exporter "
            "--help)\n");
  ChildProcess help({kDaemon, "top", "--help"});
  EXPECT_EQ(help.Wait(), 0);
  EXPECT_THAT(help.Output(), testing::HasSubstr("--segment.dir"));
}

}  // namespace
}  // namespace nccl_exporter::exporter
