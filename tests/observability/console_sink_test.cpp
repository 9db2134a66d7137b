#include "src/observability/console_sink.h"

#include <algorithm>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "tests/observability/records.h"

namespace hybrid_trainer {
namespace {

using testing::full_record;

StepRecord plain_record(std::int64_t step, Phase phase, double seconds) {
  StepRecord record = full_record(step, phase);
  record.seconds = seconds;
  record.event.clear();
  record.validation_loss.reset();
  return record;
}

std::int64_t lines(const std::string& text) { return std::count(text.begin(), text.end(), '\n'); }

TEST(ConsoleSink, ShowsProgressSpeedAndMemory) {
  std::ostringstream out;
  ConsoleSink(out, 101, {}).write(plain_record(1, Phase::kFull, 2.0));
  for (const char* part :
       {"full", "step 1/101", "loss 3.1416", "2.05k tokens/s", "3m 20s left", "110 kB"}) {
    EXPECT_NE(out.str().find(part), std::string::npos) << part << " is not in: " << out.str();
  }
}

TEST(ConsoleSink, CountsExamplesForNonTextModels) {
  std::ostringstream out;
  StepRecord record = plain_record(1, Phase::kFull, 2.0);
  record.tokens = record.effective_batch;
  ConsoleSink(out, 101, {}).write(record);
  EXPECT_NE(out.str().find("2.05k examples/s"), std::string::npos) << out.str();
}

TEST(ConsoleSink, WithoutTerminalWritesLinesPeriodically) {
  std::ostringstream out;
  ConsoleSink sink(out, 1000, {});
  for (int step = 1; step <= 600; ++step)
    sink.write(plain_record(step, Phase::kFull, 0.05));  // 30 seconds
  sink.finish();
  EXPECT_GE(lines(out.str()), 5);
  EXPECT_LE(lines(out.str()), 8);
  EXPECT_EQ(out.str().find('\r'), std::string::npos);
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
}

TEST(ConsoleSink, RewritesLineWithinTerminalWidth) {
  std::ostringstream out;
  ConsoleStyle style;
  style.rewrites = true;
  style.columns = 30;
  ConsoleSink sink(out, 1000, style);
  for (int step = 1; step <= 50; ++step) sink.write(plain_record(step, Phase::kFull, 0.2));
  std::istringstream pieces(out.str().substr(out.str().find('\n') + 1));
  int rewritten = 0;
  for (std::string piece; std::getline(pieces, piece, '\r'); ++rewritten)
    EXPECT_LT(piece.size(), 30u) << piece;
  EXPECT_GE(rewritten, 50);
  EXPECT_EQ(lines(out.str()), 1);  // the first entry of the phase
}

TEST(ConsoleSink, UsesColorsWhenEnabled) {
  ConsoleStyle style;
  style.colors = true;
  std::ostringstream out;
  ConsoleSink(out, 10, style).write(plain_record(1, Phase::kPredict, 1));
  EXPECT_NE(out.str().find("\x1b["), std::string::npos);
}

TEST(ConsoleSink, LimitsEventsAndCountsHidden) {
  std::ostringstream out;
  ConsoleSink sink(out, 100, {});
  for (int step = 1; step <= 8; ++step) {
    StepRecord record = plain_record(step, Phase::kFull, 1);
    record.decision = Decision::kNone;
    record.event = "warning: loss rose";
    sink.write(record);
  }
  EXPECT_NE(out.str().find("step 1: full warning"), std::string::npos);
  EXPECT_EQ(out.str().find("step 2: full warning"), std::string::npos);
  EXPECT_NE(out.str().find("step 6: full warning: loss rose (and 4 earlier)"), std::string::npos)
      << out.str();
}

TEST(ConsoleSink, ShowsEveryDecisionOfCorrect) {
  std::ostringstream out;
  ConsoleSink sink(out, 100, {});
  for (int step = 1; step <= 4; ++step) {
    StepRecord record = plain_record(step, Phase::kCorrect, 0.01);
    record.event = "accepted: loss fell";
    record.decision = Decision::kAccepted;
    sink.write(record);
  }
  for (int step = 1; step <= 4; ++step)
    EXPECT_NE(out.str().find(concat("step ", step, ": correct accepted")), std::string::npos)
        << out.str();
}

TEST(ConsoleSink, ShowsEveryValidationAndMessage) {
  std::ostringstream out;
  ConsoleSink sink(out, 100, {});
  for (int step = 1; step <= 3; ++step) {
    StepRecord record = plain_record(step, Phase::kFull, 0.01);
    record.validation_loss = 2.0;
    sink.write(record);
  }
  sink.report("checkpoint saved");
  EXPECT_NE(out.str().find("step 3: validation loss 2.0000"), std::string::npos);
  EXPECT_NE(out.str().find("checkpoint saved\n"), std::string::npos);
}

TEST(ConsoleSink, AcceptsNanLoss) {
  std::ostringstream out;
  StepRecord record = plain_record(1, Phase::kFull, std::nan(""));
  record.loss = std::nan("");
  record.tokens_per_second = INFINITY;
  ConsoleSink(out, 10, {}).write(record);
  EXPECT_NE(out.str().find("loss nan"), std::string::npos) << out.str();
}

}  // namespace
}  // namespace hybrid_trainer
