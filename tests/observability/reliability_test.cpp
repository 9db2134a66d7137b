#include "src/observability/report.h"

#include <gtest/gtest.h>

namespace hybrid_trainer {
namespace {

StepRecord decided(double confidence, Decision decision) {
  StepRecord record;
  record.phase = Phase::kCorrect;
  record.confidence = confidence;
  record.decision = decision;
  return record;
}

TEST(Reliability, CountsFullAcceptancesByConfidence) {
  Reliability reliability;
  reliability.add(decided(0.81, Decision::kAccepted));
  reliability.add(decided(0.89, Decision::kAccepted));
  reliability.add(decided(0.85, Decision::kShrunk));
  reliability.add(decided(0.1, Decision::kReverted));
  reliability.add(decided(1, Decision::kAccepted));
  const std::string html = reliability.html();
  for (const char* text : {"confidence 0.85: 2 of 3 accepted in full",
                           "confidence 0.10: 0 of 1 accepted", "confidence 1.00: 1 of 1 accepted"})
    EXPECT_NE(html.find(text), std::string::npos) << text << "\n" << html;
}

TEST(Reliability, IsEmptyWithoutDecisions) {
  Reliability reliability;
  reliability.add(decided(0.9, Decision::kNone));
  StepRecord unsure = decided(0, Decision::kAccepted);
  unsure.confidence.reset();
  reliability.add(unsure);
  EXPECT_EQ(reliability.html(), "");
}

}  // namespace
}  // namespace hybrid_trainer
