// SPDX-License-Identifier: Apache-2.0
// Headers that Prometheus releases, browsers and odd clients send, and the formats that they get.
#include "exporter/exposition/negotiation.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::exporter {
namespace {

struct Case {
  const char* sender;
  const char* accept;
  Format format;
};

const std::string& ProtobufEntry() {
  static const std::string kEntry =
      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
  return kEntry;
}

const std::string kWithProtobuf242 =
    ProtobufEntry() +
    ",application/openmetrics-text;version=1.0.0;q=0.8,application/"
    "openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
const std::string kWithProtobuf249 =
    ProtobufEntry() +
    ";q=0.5,application/openmetrics-text;version=1.0.0;q=0.4,application/"
    "openmetrics-text;version=0.0.1;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
const std::string kWithProtobuf34 =
    ProtobufEntry() +
    ";q=0.6,application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,text/"
    "plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
const Case kPrometheusReleases[] = {
    {"2.40",
     "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
     Format::kOpenMetrics},
    {"2.40 with native histograms",
     "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
     "encoding=delimited,"
     "application/openmetrics-text; version=1.0.0; q=0.75,text/plain; version=0.0.4; q=0.5,*/*; "
     "q=0.1",
     Format::kProtobuf},
    {"2.41 to 2.48",
     "application/openmetrics-text;version=1.0.0,application/"
     "openmetrics-text;version=0.0.1;q=0.75,"
     "text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
     Format::kOpenMetrics},
    {"2.42 with native histograms", kWithProtobuf242.c_str(), Format::kProtobuf},
    {"2.49.0",
     "application/openmetrics-text;version=1.0.0;q=0.5,application/"
     "openmetrics-text;version=0.0.1;q=0.4,"
     "text/plain;version=0.0.4;q=0.3,*/*;q=2",
     Format::kOpenMetrics},
    {"2.49.1 to 2.53",
     "application/openmetrics-text;version=1.0.0;q=0.5,application/"
     "openmetrics-text;version=0.0.1;q=0.4,"
     "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
     Format::kOpenMetrics},
    {"2.49.1 to 2.53, protobuf first", kWithProtobuf249.c_str(), Format::kProtobuf},
    {"2.49.0, protobuf first",
     "application/"
     "vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,"
     "application/openmetrics-text;version=1.0.0;q=0.5,application/"
     "openmetrics-text;version=0.0.1;q=0.4,"
     "text/plain;version=0.0.4;q=0.3,*/*;q=2",
     Format::kProtobuf},
    {"3.0 to 3.3, protobuf first",
     "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;"
     "escaping=allow-utf-8;q=0.6,application/"
     "openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
     "application/openmetrics-text;version=0.0.1;escaping=allow-utf-8;q=0.4,"
     "text/plain;version=1.0.0;escaping=allow-utf-8;escaping=allow-utf-8;q=0.3,"
     "text/plain;version=0.0.4;escaping=allow-utf-8;q=0.2,*/*;escaping=allow-utf-8;q=0.1",
     Format::kProtobuf},
    {"3.0 to 3.3",
     "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
     "application/openmetrics-text;version=0.0.1;escaping=allow-utf-8;q=0.5,"
     "text/plain;version=1.0.0;escaping=allow-utf-8;escaping=allow-utf-8;q=0.4,"
     "text/plain;version=0.0.4;escaping=allow-utf-8;q=0.3,*/*;escaping=allow-utf-8;q=0.2",
     Format::kOpenMetrics},
    {"3.4 and later",
     "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
     "application/openmetrics-text;version=0.0.1;q=0.5,text/"
     "plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
     "text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
     Format::kOpenMetrics},
    {"3.4 and later, protobuf first", kWithProtobuf34.c_str(), Format::kProtobuf},
};

TEST(NegotiationTest, GivesEveryPrometheusReleaseItsBestFormat) {
  for (const Case& known : kPrometheusReleases)
    EXPECT_EQ(NegotiateFormat(known.accept), known.format) << known.sender;
}

TEST(NegotiationTest, AnswersTextWhereNothingElseIsAskedFor) {
  const Case cases[] = {
      {"no header", "", Format::kText},
      {"curl", "*/*", Format::kText},
      {"browser", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8",
       Format::kText},
      {"unknown format", "application/json", Format::kText},
      {"protobuf without its parameters", "application/vnd.google.protobuf", Format::kText},
      {"protobuf, another message",
       "application/vnd.google.protobuf;proto=some.Message;encoding=delimited", Format::kText},
      {"protobuf as text",
       "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text",
       Format::kText},
      {"protobuf without encoding",
       "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily", Format::kText},
      {"protobuf refused",
       "application/"
       "vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0",
       Format::kText},
      {"newer text", "text/plain;version=1.0.0", Format::kText},
      {"older OpenMetrics alone", "application/openmetrics-text;version=0.0.1", Format::kText},
      {"nothing but separators", " , ;;, ;q=, =;=,", Format::kText},
      {"OpenMetrics refused", "application/openmetrics-text;q=0", Format::kText},
  };
  for (const Case& known : cases)
    EXPECT_EQ(NegotiateFormat(known.accept), known.format) << known.sender;
}

TEST(NegotiationTest, ReadsOddButLegalSpellings) {
  const Case cases[] = {
      {"no version", "application/openmetrics-text", Format::kOpenMetrics},
      {"upper case", "Application/OpenMetrics-Text; Version=1.0.0; Q=0.5", Format::kOpenMetrics},
      {"blanks all over",
       "  application/openmetrics-text ;\tversion = 1.0.0 ; q = 0.5 , text/plain ; q=0.4 ",
       Format::kOpenMetrics},
      {"q before other parameters",
       "application/openmetrics-text;q=0.2;version=1.0.0,text/plain;q=0.3", Format::kText},
      {"worst first", "*/*;q=0.1,text/plain;q=0.2,application/openmetrics-text;version=1.0.0;q=0.3",
       Format::kOpenMetrics},
      {"protobuf alone", ProtobufEntry().c_str(), Format::kProtobuf},
      {"protobuf in upper case, parameters in any order",
       "APPLICATION/VND.GOOGLE.PROTOBUF; q=0.9; Encoding=delimited; x=y; "
       "Proto=io.prometheus.client.MetricFamily",
       Format::kProtobuf},
      {"text preferred",
       "application/openmetrics-text;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.9",
       Format::kText},
      {"a tie goes to the first", "text/plain,application/openmetrics-text;version=1.0.0",
       Format::kText},
      {"q without a leading zero", "text/plain;q=.1,application/openmetrics-text;q=.2",
       Format::kOpenMetrics},
  };
  for (const Case& known : cases)
    EXPECT_EQ(NegotiateFormat(known.accept), known.format) << known.sender;
}

TEST(NegotiationTest, IgnoresEntriesWhoseQualityIsNone) {
  for (const char* quality : {"2", "1.5", "-1", "nan", "inf", "x", "", "0.5x", "1e0"}) {
    const std::string accept =
        std::string("text/plain;q=") + quality + ",application/openmetrics-text;q=0.1";
    EXPECT_EQ(NegotiateFormat(accept), Format::kOpenMetrics) << accept;
  }
}

TEST(NegotiationTest, NamesTheFormatAsPrometheusExpectsIt) {
  EXPECT_EQ(ContentType(Format::kText), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(ContentType(Format::kOpenMetrics),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
  EXPECT_EQ(ContentType(Format::kProtobuf),
            "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; "
            "encoding=delimited");
}

TEST(NegotiationTest, LeavesHalfASecondOfTheScrapeTimeoutForTheWayBack) {
  EXPECT_EQ(ScrapeBudget("10"), std::chrono::milliseconds(9500));
  EXPECT_EQ(ScrapeBudget(" 2.5 "), std::chrono::milliseconds(2000));
  EXPECT_EQ(ScrapeBudget("0.5"), std::chrono::milliseconds(250)) << "half of what is little";
}

TEST(NegotiationTest, AScrapeTimeoutThatIsNoneSetsNoLimit) {
  for (const char* timeout :
       {"", "0", "-1", "nan", "inf", "1e3", "10s", "ten", "1e400", "99999999999999999999"}) {
    EXPECT_EQ(ScrapeBudget(timeout), std::nullopt) << timeout;
  }
}

TEST(NegotiationTest, CompressesOnlyWhereThatIsAccepted) {
  for (const char* accept :
       {"gzip", "GZIP", "deflate, gzip;q=0.5", "*", "br;q=1.0, *;q=0.1", "gzip , identity"}) {
    EXPECT_TRUE(AcceptsGzip(accept)) << accept;
  }
  for (const char* accept :
       {"", "identity", "gzip;q=0", "*, gzip;q=0", "gzip;q=7", "gzipped", "deflate"}) {
    EXPECT_FALSE(AcceptsGzip(accept)) << accept;
  }
}

}  // namespace
}  // namespace nccl_exporter::exporter
