// SPDX-License-Identifier: Apache-2.0
// Command lines, good and bad.
#include "exporter/cli/command_line.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "exporter/cli/report/report_request.h"
#include "exporter/cli/waiting.h"
#include "exporter/text/duration_text.h"
#include "exporter/trace/trace_command.h"

namespace nccl_exporter::exporter {
namespace {

using std::chrono_literals::operator""h;
using std::chrono_literals::operator""min;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;

using Arguments = std::vector<const char*>;

// The fault of a command line.
std::string Parse(Arguments arguments, CommandLine& line) {
  arguments.insert(arguments.begin(), "nccl-exporter");
  return line.Parse(static_cast<int>(arguments.size()), arguments.data());
}

std::string ErrorOf(const Arguments& arguments) {
  CommandLine line;
  return Parse(arguments, line);
}

Options Parsed(const Arguments& arguments) {
  CommandLine line;
  EXPECT_EQ(Parse(arguments, line), "");
  return line.options();
}

std::string TextOf(const Arguments& arguments) {
  CommandLine line;
  EXPECT_EQ(Parse(arguments, line), "");
  EXPECT_FALSE(line.is_daemon());
  return line.text();
}

// The flags of one command, without its name.
template <typename Request>
Request RequestOf(void (*add_flags)(CLI::App&, Request&), Arguments arguments) {
  CLI::App app;
  Request request;
  add_flags(app, request);
  arguments.insert(arguments.begin(), "nccl-exporter");
  app.parse(LastFirst(static_cast<int>(arguments.size()), arguments.data()));
  return request;
}

TEST(OptionsTest, DefaultsAreThoseOfTheTable) {
  const Options options = Parsed({});
  EXPECT_THAT(options.listen_addresses, testing::ElementsAre(":9828"));
  EXPECT_EQ(options.telemetry_path, "/metrics");
  EXPECT_THAT(options.segment_dirs,
              testing::ElementsAre("/run/nccl-exporter", "/dev/shm/nccl-exporter",
                                   "/dev/shm/nccl-exporter-*"));
  EXPECT_EQ(options.web_config_file, "");
  EXPECT_EQ(options.retention, 5min);
  EXPECT_EQ(options.log_level, LogLevel::kInfo);
  EXPECT_EQ(options.log_format, LogFormat::kLogfmt);
}

TEST(OptionsTest, HistogramsHaveClassicAndNativeBuckets) {
  const MetricFilter metrics = Parsed({}).metrics;
  EXPECT_TRUE(metrics.has_classic_buckets());
  EXPECT_EQ(metrics.native_schema(), DurationBuckets::kSchema);
}

// Regression: such a flag took the next one for its value, or was refused as the last argument.
TEST(OptionsTest, AValueMayBeEmptyInBothSpellings) {
  for (const OptionRow& row : kOptions) {
    if (row.takes == FlagTakes::kNothing) continue;
    const std::string name(row.name), joined = name + "=";
    CommandLine line;
    const std::string error = ErrorOf({name.c_str(), "", "--web.enable-debug-trace"});
    EXPECT_EQ(Parse({joined.c_str(), "--web.enable-debug-trace"}, line), error) << name;
    EXPECT_TRUE(line.options().serves_traces || !error.empty()) << name;
    EXPECT_EQ(ErrorOf({joined.c_str()}), error) << name;
  }
  const Options without = Parsed({"--findings.socket=", "--segment.retention=3s"});
  EXPECT_EQ(without.findings_socket, "");
  EXPECT_EQ(without.retention, 3s);
  EXPECT_EQ(Parsed({"--findings.config=", "--web.config.file="}).web_config_file, "");
  EXPECT_THAT(RequestOf(AddReportFlags, {"--job=", "--uid=7"}).wanted,
              testing::ElementsAre(testing::Pair("nccl_job", ""), testing::Pair("uid", "7")));
  EXPECT_THAT(RequestOf(AddTraceFlags, {"--job=cluster=", "--last=3s"}).wanted,
              testing::ElementsAre("cluster="))
      << "the value has a sign of its own";
}

TEST(OptionsTest, AWaitHasKindsAJobAndATimeOut) {
  const WaitRequest plain = RequestOf(AddWaitFlags, {});
  EXPECT_THAT(plain.awaited, testing::ElementsAre(Awaited::kHang, Awaited::kKilled));
  EXPECT_EQ(plain.timeout, std::nullopt);
  EXPECT_EQ(plain.daemon, kDefaultDaemon);
  const WaitRequest request =
      RequestOf(AddWaitFlags, {"--for", "late,hang", "--job=4711", "--uid=7", "--timeout", "24h",
                               "--daemon=https://node-2:9828"});
  EXPECT_THAT(request.awaited, testing::ElementsAre(Awaited::kLate, Awaited::kHang));
  EXPECT_EQ(request.timeout, 24h);
  EXPECT_EQ(request.daemon, "https://node-2:9828");
  EXPECT_THAT(request.wanted,
              testing::ElementsAre(testing::Pair("nccl_job", "4711"), testing::Pair("uid", "7")));
  for (const char* const wrong :
       {"--for=hung", "--for=", "--timeout=soon", "--daemon=node-2:9828", "--uid=ann"})
    EXPECT_NE(ErrorOf({"wait", wrong}), "") << wrong;
}

TEST(OptionsTest, TracesHaveALengthAndParts) {
  const TraceRequest last =
      RequestOf(AddTraceFlags, {"--last", "1m30s", "--job=4711", "--job", "ns"});
  EXPECT_EQ(last.last, 90s);
  EXPECT_EQ(last.length, std::nullopt);
  EXPECT_THAT(last.wanted, testing::ElementsAre("4711", "ns"));
  const TraceRequest recorded = RequestOf(AddTraceFlags, {"--seconds", "10", "-o", "a.json.gz"});
  EXPECT_EQ(recorded.length, 10s);
  EXPECT_EQ(recorded.output, "a.json.gz");
  EXPECT_THAT(Parsed({"--segment.dir=/x", "trace", "--seconds", "10"}).segment_dirs,
              testing::ElementsAre("/x"));
  EXPECT_EQ(ErrorOf({"trace", "merge", "a", "b", "-o", "c"}), "");
  EXPECT_EQ(ErrorOf({"trace", "summary", "a"}), "");
  for (const char* const wrong : {"--output=a.pftrace", "--output=a.pftrace.gz"}) {
    for (const std::vector<const char*>& arguments :
         std::vector<std::vector<const char*>>{{"trace", wrong}, {"trace", "merge", "b", wrong}})
      EXPECT_THAT(ErrorOf(arguments), testing::HasSubstr("write NAME.json or NAME.json.gz"));
  }
  EXPECT_THAT(ErrorOf({"trace", "--last=1s", "--seconds=1"}), testing::HasSubstr("excludes"));
  for (const char* const wrong : {"--last=0", "--seconds=2h", "--seconds=x"})
    EXPECT_THAT(ErrorOf({"trace", wrong}), testing::HasSubstr("an hour at most"));
  EXPECT_NE(ErrorOf({"trace", "merge"}), "");
  EXPECT_NE(ErrorOf({"trace", "mergo"}), "");
  EXPECT_TRUE(Parsed({"--web.enable-debug-trace"}).serves_traces);
  EXPECT_FALSE(Parsed({}).serves_traces);
}

TEST(OptionsTest, MetricsAreSwitchedOffOneByOne) {
  const MetricFilter metrics =
      Parsed({"--metrics.disable=histograms", "--metrics.disable", "nccl_p2p_*",
              "--metrics.drop-label=size", "--metrics.drop-label=comm_name",
              "--metrics.classic-buckets=off", "--metrics.native-schema=off"})
          .metrics;
  EXPECT_FALSE(metrics.Serves("nccl_collective_duration_seconds"));
  EXPECT_FALSE(metrics.Serves("nccl_p2p_send_bytes_total"));
  EXPECT_TRUE(metrics.Serves("nccl_collective_bytes_total"));
  EXPECT_FALSE(metrics.Keeps("size"));
  EXPECT_FALSE(metrics.Keeps("comm_name"));
  EXPECT_TRUE(metrics.Keeps("comm"));
  EXPECT_FALSE(metrics.has_classic_buckets());
  EXPECT_EQ(metrics.native_schema(), std::nullopt);
}

TEST(OptionsTest, DurationsAreSplitOnRequestUnlessTheLabelIsDropped) {
  EXPECT_FALSE(Parsed({}).metrics.splits_durations());
  EXPECT_TRUE(Parsed({"--metrics.duration-by-size"}).metrics.splits_durations());
  EXPECT_FALSE(Parsed({"--metrics.duration-by-size", "--metrics.drop-label=size"})
                   .metrics.splits_durations());
}

TEST(OptionsTest, WhatCannotBeSwitchedOffIsAnsweredWithTheNearest) {
  EXPECT_EQ(ErrorOf({"--metrics.drop-label=pot"}),
            "invalid value 'pot' of --metrics.drop-label: 'pot' is no label that can be dropped; "
            "the nearest is pod");
  EXPECT_THAT(ErrorOf({"--metrics.disable=nccl_process_alife"}),
              testing::HasSubstr("the nearest is nccl_process_alive"));
}

TEST(OptionsTest, GivenValuesReplaceTheDefaults) {
  const Options options =
      Parsed({"--web.listen-address", "127.0.0.1:1", "--web.listen-address=localhost:2",
              "--web.telemetry-path=/m", "--segment.dir=/a", "--segment.dir", "/b,c",
              "--segment.retention=90", "--log.level=debug", "--log.format=json",
              "--web.listen-address=[::1]:3", "--web.config.file=w.yml", "--web.enable-debug-trace",
              "--web.health-address=:5", "--web.health-address=[::1]:5"});
  EXPECT_THAT(options.listen_addresses,
              testing::ElementsAre("127.0.0.1:1", "localhost:2", "[::1]:3"));
  EXPECT_THAT(options.health_addresses, testing::ElementsAre(":5", "[::1]:5"));
  EXPECT_EQ(options.web_config_file, "w.yml");
  EXPECT_TRUE(options.serves_traces);
  EXPECT_EQ(options.telemetry_path, "/m");
  EXPECT_THAT(options.segment_dirs, testing::ElementsAre("/a", "/b,c"));
  EXPECT_EQ(options.retention, 90s);
  EXPECT_EQ(options.log_level, LogLevel::kDebug);
  EXPECT_EQ(options.log_format, LogFormat::kJson);
}

TEST(OptionsTest, BadValuesAreNamedInOneLine) {
  const std::vector<std::pair<const char*, std::vector<const char*>>> cases{
      {"--web.listen-address",
       {"9828", "host", ":65536", ":-1", ":", "a b:1", "::1:9828", "[::1]", "[::g]:1",
        "[1.2.3.4]:1", ":80s", ""}},
      {"--web.health-address", {"9829", "::1:9829", "", ":80s"}},
      {"--web.telemetry-path",
       {"metrics", "/", "", "/-/ready", "/-/healthy", "/api/v1/node", "/page.js", "/a?b", "/a#b",
        "/a b", "/a//b", "/../a", "/a%20", "/a\"b", "/a<b", "/a&b"}},
      {"--segment.dir", {""}},
      {"--segment.retention",
       {"", "-1", "5 m", "5x", "m", "1m1h", "1m1m", "1.5h", "9999d", "99999999999999999999"}},
      {"--metrics.disable", {"", "nccl", "x*", "nccl_*_total"}},
      {"--metrics.drop-label", {"", "le", "reason", "hostname"}},
      {"--metrics.classic-buckets", {"", "none", "0.001,1", "On"}},
      {"--metrics.native-schema", {"", "4", "-1", "on"}},
      {"--log.level", {"trace", "INFO", ""}},
      {"--log.format", {"text", ""}},
  };
  for (const auto& [flag, values] : cases) {
    for (const char* value : values) {
      const std::string argument = std::string(flag) + '=' + value;
      const std::string error = ErrorOf({argument.c_str()});
      EXPECT_THAT(error, testing::HasSubstr(flag)) << argument;
      EXPECT_THAT(error, testing::Not(testing::HasSubstr("\n"))) << argument;
    }
  }
}

TEST(OptionsTest, BadCommandLinesAreNamedInOneLine) {
  const std::vector<std::vector<const char*>> cases{{"--web.listen"},
                                                    {"--nonsense=1"},
                                                    {"nonsense"},
                                                    {"--log.level=info", "--log.level=warn"},
                                                    {"--log.level"},
                                                    {"trace", "merge"},
                                                    {"top", "a"},
                                                    {"man", "x"},
                                                    {"-x"},
                                                    {"top", "--x=1"},
                                                    {"top", "--daemon"},
                                                    {"man", "top"}};
  for (const auto& arguments : cases) {
    const std::string error = ErrorOf(arguments);
    EXPECT_NE(error, "") << arguments.front();
    EXPECT_THAT(error, testing::Not(testing::HasSubstr("\n"))) << arguments.front();
  }
}

TEST(OptionsTest, WithoutACommandTheDaemonIsToRun) {
  for (const Arguments& arguments : std::vector<Arguments>{{"trace", "summary", "a"},
                                                           {"top"},
                                                           {"top", "--once"},
                                                           {"--segment.dir=/a", "inflight"},
                                                           {"report"},
                                                           {"doctor"},
                                                           {"man"}}) {
    CommandLine line;
    EXPECT_EQ(Parse(arguments, line), "");
    EXPECT_FALSE(line.is_daemon()) << arguments.front();
  }
  CommandLine line;
  EXPECT_EQ(Parse({"--segment.dir=/a"}, line), "");
  EXPECT_TRUE(line.is_daemon());
}

TEST(OptionsTest, HelpShowsEveryFlagWithItsDefaultButThoseForTests) {
  const std::string help = TextOf({"--help"});
  EXPECT_EQ(Parsed({"--findings.time-scale=15"}).findings_time_scale, 15);
  for (const OptionRow& row : kOptions) {
    if (row.is_for_tests) {
      EXPECT_THAT(help, testing::Not(testing::HasSubstr(std::string(row.name))));
      continue;
    }
    EXPECT_THAT(help, testing::HasSubstr(std::string(row.name)));
    EXPECT_THAT(help, testing::HasSubstr(std::string(row.default_value)));
  }
}

TEST(OptionsTest, VersionGoesToStandardOutput) {
  EXPECT_EQ(TextOf({"--version"}), "nccl-exporter 0.1.0\n");
  CommandLine line("abc");
  EXPECT_EQ(Parse({"--version"}, line), "");
  EXPECT_EQ(line.text(), "nccl-exporter 0.1.0 (abc)\n");
}

TEST(OptionsTest, FlagsStandBeforeOrAfterTheCommand) {
  for (const std::vector<const char*>& arguments :
       std::vector<std::vector<const char*>>{{"top", "--segment.dir=/a", "--once"},
                                             {"--segment.dir=/a", "top", "--once"},
                                             {"inflight", "--segment.dir", "/a"},
                                             {"doctor", "--segment.dir", "/a"}}) {
    EXPECT_THAT(Parsed(arguments).segment_dirs, testing::ElementsAre("/a")) << arguments.front();
  }
  EXPECT_THAT(Parsed({"--segment.dir=/a", "top", "--segment.dir=/b"}).segment_dirs,
              testing::ElementsAre("/a", "/b"));
  EXPECT_EQ(ErrorOf({"--findings.config=a", "top", "--findings.config=b"}),
            "--findings.config is given twice");
}

TEST(OptionsTest, HelpOfACommandListsItsFlags) {
  for (const std::vector<const char*>& arguments :
       std::vector<std::vector<const char*>>{{"top", "--help"}, {"top", "-h"}}) {
    const std::string help = TextOf(arguments);
    EXPECT_THAT(help, testing::HasSubstr("nccl-exporter top"));
    EXPECT_THAT(help, testing::HasSubstr("--segment.dir"));
    EXPECT_THAT(help, testing::HasSubstr("--once"));
    EXPECT_THAT(help, testing::Not(testing::HasSubstr("--log.level")));
  }
  EXPECT_THAT(TextOf({"trace", "merge", "--help"}),
              testing::HasSubstr("nccl-exporter trace merge"));
}

TEST(OptionsTest, AnswersASlipWithWhatWasMeant) {
  EXPECT_EQ(ErrorOf({"tpo"}), "there is no command 'tpo'; did you mean 'top'?");
  EXPECT_EQ(ErrorOf({"--hlep"}), "there is no flag '--hlep'; did you mean '--help'?");
  EXPECT_EQ(ErrorOf({"--segment.dri=/a", "top"}),
            "there is no flag '--segment.dri'; did you mean '--segment.dir'?");
  EXPECT_EQ(ErrorOf({"top", "--oncee"}), "there is no flag '--oncee'; did you mean '--once'?");
  EXPECT_EQ(ErrorOf({"top", "--sort=late"}), "there is no flag '--sort'")
      << "of builds before 0.1.0";
  EXPECT_EQ(ErrorOf({"--once", "top"}),
            "--once stands after the command: nccl-exporter top --once");
  EXPECT_EQ(ErrorOf({"nonsense"}), "there is no command 'nonsense'");
  for (const char* const former : {"cardinality", "completion", "dump", "help", "version"})
    EXPECT_EQ(ErrorOf({former}), "there is no command '" + std::string(former) + "'");
  EXPECT_EQ(ErrorOf({"catalogue"}), "there is no command 'catalogue'");
  EXPECT_EQ(ErrorOf({"timing", "--always", "--for", "60s"}), "there is no command 'timing'");
  EXPECT_EQ(ErrorOf({"top", "--log.level=info"}),
            "--log.level is a flag of the daemon, not of top");
}

TEST(OptionsTest, ALinkLocalAddressHasAZone) {
  EXPECT_EQ(ErrorOf({"--web.listen-address", "[fe80::1%eth0]:9828"}), "");
}

TEST(OptionsTest, AWrongAddressIsAnsweredWithTheReason) {
  const std::vector<std::pair<const char*, const char*>> cases{{"9828", "it has no port"},
                                                               {"[::1]", "it has no port"},
                                                               {":65536", "the port '65536'"},
                                                               {"::1:9828", "needs brackets"},
                                                               {"[::g]:1", "'::g' is no IPv6"},
                                                               {"a b:1", "'a b' is neither a name"},
                                                               {"[fe80::1%]:1", "no IPv6"},
                                                               {"http://a:1", "without a scheme"},
                                                               {":", "the port ''"}};
  for (const auto& [address, reason] : cases) {
    EXPECT_THAT(ErrorOf({"--web.listen-address", address}), testing::HasSubstr(reason));
  }
}

TEST(OptionsTest, JsonAndPidAreOfTheirCommands) {
  for (const Arguments& arguments : std::vector<Arguments>{{"top", "--json"},
                                                           {"inflight", "--json"},
                                                           {"report", "--json"},
                                                           {"doctor", "--pid", "12"}})
    EXPECT_EQ(ErrorOf(arguments), "");
  EXPECT_NE(ErrorOf({"doctor", "--json"}), "");
  EXPECT_NE(ErrorOf({"doctor", "--pid", "-1"}), "");
  EXPECT_NE(ErrorOf({"doctor", "--pid=me"}), "");
  EXPECT_THAT(ErrorOf({"doctor", "--pid", "0"}), testing::HasSubstr("range 1 to 4194304"));
}

TEST(OptionsTest, TheDaemonIsAnAddressOfThisNodeOrNone) {
  for (const char* const command : {"top", "inflight"}) {
    EXPECT_THAT(TextOf({command, "--help"}), testing::HasSubstr("http://127.0.0.1:9828"));
    EXPECT_EQ(ErrorOf({command, "--daemon=none"}), "");
    EXPECT_EQ(ErrorOf({command, "--daemon", "http://[::1]:99"}), "");
    EXPECT_THAT(ErrorOf({command, "--daemon=https://127.0.0.1:9828"}),
                testing::HasSubstr("write http://HOST:PORT"));
    EXPECT_THAT(ErrorOf({command, "--daemon=http://node-2:9828"}),
                testing::HasSubstr("the daemon is on this node"));
  }
  EXPECT_NE(ErrorOf({"doctor", "--daemon=none"}), "");
}

TEST(OptionsTest, AJobIsChosenByItsLabelsInAPrometheus) {
  EXPECT_EQ(RequestOf(AddReportFlags, {}).prometheus.Text(), "http://localhost:9090");
  const ReportRequest request =
      RequestOf(AddReportFlags,
                {"--prometheus=https://mimir/prometheus", "--job=4711", "--namespace", "research",
                 "--cluster", "", "--uid=1000", "--http.config.file=a.yml", "--json"});
  EXPECT_EQ(request.prometheus.Text(), "https://mimir:443/prometheus");
  EXPECT_EQ(
      request.wanted,
      (SampleLabels{
          {"nccl_job", "4711"}, {"namespace", "research"}, {"cluster", ""}, {"uid", "1000"}}));
  EXPECT_EQ(request.http_config_file, "a.yml");
  EXPECT_TRUE(request.is_json);
  EXPECT_THAT(
      ErrorOf({"report", "--prometheus=prometheus:9090"}),
      testing::HasSubstr(
          "invalid value 'prometheus:9090' of --prometheus: it does not begin with http://"));
  EXPECT_NE(ErrorOf({"report", "--job"}), "");
  EXPECT_TRUE(RequestOf(AddReportFlags, {}).wanted.empty());
  EXPECT_NE(ErrorOf({"report", "--uid=alice"}), "");
}

TEST(OptionsTest, AReportIsOfATimeAndOfOneSource) {
  const ReportRequest request = RequestOf(
      AddReportFlags, {"--from=2023-11-14T22:15", "--to", "2023-11-14 22:30:00Z", "--html=a.html"});
  EXPECT_EQ(request.from, 1700000100);
  EXPECT_EQ(request.to, 1700001000);
  EXPECT_EQ(request.html_file, "a.html");
  EXPECT_EQ(RequestOf(AddReportFlags, {"--since=8h"}).since, 8h);
  EXPECT_TRUE(RequestOf(AddReportFlags, {"--at=03:05"}).at);
  EXPECT_EQ(RequestOf(AddReportFlags, {"frozen.json"}).file, "frozen.json");
  EXPECT_TRUE(RequestOf(AddReportFlags, {"--segments"}).is_of_segments);
  EXPECT_THAT(ErrorOf({"report", "--at=noon"}), testing::HasSubstr("22:15, in UTC"));
  EXPECT_NE(ErrorOf({"report", "--at=03:05", "--since=1h"}), "");
  EXPECT_NE(ErrorOf({"report", "--segments", "--prometheus=http://a"}), "");
}

TEST(OptionsTest, ADiffIsOfTwoAndCostsAreOfAWeek) {
  EXPECT_EQ(ErrorOf({"report", "diff", "4711", "4712"}), "");
  EXPECT_EQ(ErrorOf({"report", "diff", "4711", "--at=03:05", "--json"}), "");
  EXPECT_NE(ErrorOf({"report", "diff"}), "");
  EXPECT_NE(ErrorOf({"report", "diff", "1", "2", "3"}), "");
  EXPECT_EQ(ErrorOf({"report", "costs", "--since=30d", "--by", "user", "--cluster=a"}), "");
  EXPECT_NE(ErrorOf({"report", "costs", "--by=node"}), "");
  EXPECT_THAT(TextOf({"report", "costs", "--help"}), testing::HasSubstr("=team"));
}

TEST(OptionsTest, TheCommandThatIsGoneNamesItsSuccessor) {
  EXPECT_THAT(ErrorOf({"job", "--job=4711"}), testing::HasSubstr("nccl-exporter report"));
}

TEST(DurationTextTest, ReadsPrometheusDurationsAndSeconds) {
  EXPECT_EQ(ParseDuration("0"), 0s);
  EXPECT_EQ(ParseDuration("300"), 300s);
  EXPECT_EQ(ParseDuration("5m"), 5min);
  EXPECT_EQ(ParseDuration("1h30m"), 90min);
  EXPECT_EQ(ParseDuration("1d1h1m1s1ms"), 25h + 1min + 1s + 1ms);
  EXPECT_EQ(ParseDuration("365d"), kMaxDuration);
}

TEST(DurationTextTest, RefusesEverythingElse) {
  for (const char* text : {"", "s", "5m5", "1s1h", "1m1m", "+5", "-5", " 5", "5 ", "1.5", "0x10",
                           "366d", "365d1ms", "18446744073709551616"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
