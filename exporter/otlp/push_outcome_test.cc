// SPDX-License-Identifier: Apache-2.0
// Answers of receivers: statuses, Retry-After, partial success, and garbage.
#include "exporter/otlp/push_outcome.h"

#include <gtest/gtest.h>

#include <string>

namespace nccl_exporter::exporter::otlp {
namespace {

constexpr int64_t kNow = 784111770;  // 1994-11-06 08:49:30 UTC

PushOutcome OutcomeOfText(const std::string& text) {
  PlainAnswer answer;
  if (!TakeApart(text, true, answer)) answer.fault = "an answer without its end";
  return OutcomeOf(answer, kNow);
}

PushOutcome OutcomeWith(int status, const std::string& fields = "", const std::string& body = "") {
  return OutcomeOfText("HTTP/1.1 " + std::to_string(status) + " X\r\n" + fields +
                       "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
}

TEST(PushOutcomeTest, StatusesSayWhetherToTryAgain) {
  for (const int status : {200, 202, 204})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kAccepted) << status;
  for (const int status : {429, 502, 503, 504})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kTryAgain) << status;
  for (const int status : {301, 400, 401, 403, 404, 408, 413, 500, 501})
    EXPECT_EQ(OutcomeWith(status).end, PushEnd::kRefused) << status;
}

TEST(PushOutcomeTest, WithoutAStatusThereIsAnotherTry) {
  PlainAnswer none;
  none.fault = "Connection refused";
  EXPECT_EQ(OutcomeOf(none, kNow).end, PushEnd::kTryAgain);
  EXPECT_EQ(OutcomeOf(none, kNow).reason, "Connection refused");
  EXPECT_EQ(OutcomeOfText("\x15\x03\x03\r\n").end, PushEnd::kTryAgain);
  EXPECT_EQ(OutcomeOfText("").end, PushEnd::kTryAgain);
}

TEST(PushOutcomeTest, AStatusIsEnoughWhereTheEndIsMissing) {
  EXPECT_EQ(OutcomeOfText("HTTP/1.1 200 OK\r\n\r\n").end, PushEnd::kAccepted);
  EXPECT_EQ(OutcomeOfText("HTTP/1.1 400 Bad\r\n\r\nabc").end, PushEnd::kRefused);
}

TEST(PushOutcomeTest, RetryAfterIsSecondsOrADate) {
  const auto after = [](const std::string& value) {
    const auto seconds = OutcomeWith(503, "Retry-After: " + value + "\r\n").retry_after;
    return seconds ? seconds->count() : -1;
  };
  EXPECT_EQ(after("7"), 7);
  EXPECT_EQ(after("Sun, 06 Nov 1994 08:49:37 GMT"), 7);
  EXPECT_EQ(after("Sun, 06 Nov 1994 08:49:00 GMT"), 0);
  EXPECT_EQ(after("4000000000"), kLongestRetryAfter.count());
  for (const char* const none : {"", "-1", "soon", "5 s", "99999999999999999999"})
    EXPECT_EQ(after(none), -1) << none;
}

TEST(PushOutcomeTest, APartialSuccessHasANumberAndAReason) {
  const PushOutcome outcome = OutcomeWith(200, "", "\x0a\x0b\x08\x05\x12\x07too old");
  EXPECT_EQ(outcome.end, PushEnd::kAccepted);
  EXPECT_EQ(outcome.rejected_points, 5u);
  EXPECT_EQ(outcome.reason, "too old");
  for (const char* const whole : {"", "{}", "<html>", "ok\n", "\x0a\xff garbage", "\x0a\x02\x08"}) {
    EXPECT_EQ(OutcomeWith(200, "", whole).rejected_points, 0u) << whole;
    EXPECT_EQ(OutcomeWith(200, "", whole).reason, "") << whole;
  }
}

TEST(PushOutcomeTest, AReasonIsPrintableAndShort) {
  EXPECT_EQ(OutcomeWith(400, "", "\x12\x03no\x1b").reason, "status 400: no?");
  EXPECT_EQ(OutcomeWith(400, "", "\x1b[2Jno\n").reason, "status 400: ?[2Jno?");
  EXPECT_EQ(OutcomeWith(400).reason, "status 400");
  EXPECT_LE(OutcomeWith(400, "", std::string(10000, 'x')).reason.size(), 512u);
}

}  // namespace
}  // namespace nccl_exporter::exporter::otlp
