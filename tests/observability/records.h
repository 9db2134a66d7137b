#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer::testing {

/// A record with a value in every field.
inline StepRecord full_record(std::int64_t step, Phase phase = Phase::kFull) {
  StepRecord record;
  record.step = step;
  record.phase = phase;
  record.loss = 3.1415926535;
  record.learning_rate = 1e-3;
  record.gradient_norm = 0.7;
  record.tokens = 1024;
  record.effective_batch = 16;
  record.micro_batches = 2;
  record.recommended_micro_batch = 12;
  record.seconds = 0.5;
  record.tokens_per_second = 2048;
  for (std::size_t kind = 0; kind < kMemoryKinds; ++kind) {
    record.device_memory.live[kind] = 1000 * (kind + 1);
    record.device_memory.peak[kind] = 2000 * (kind + 1);
    record.device_memory.live_total += record.device_memory.live[kind];
    record.device_memory.peak_total += record.device_memory.peak[kind];
  }
  record.host_memory.live_total = 77;
  record.predicted_loss = 3.25;
  record.confidence = 0.5;
  record.decision = Decision::kAccepted;
  record.kept_fraction = 1;
  record.recovery = Recovery::kForceFull;
  record.cost = 2.4;
  record.event = "accepted: loss 3.2 -> 3.1";
  record.validation_loss = 3.5;
  return record;
}

/// An empty folder, removed after the test.
class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::temp_directory_path() / ("hybrid_" + std::to_string(::getpid()) + "_" +
                                                      test->test_suite_name() + "_" + test->name());
    std::filesystem::create_directories(path_);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  std::filesystem::path file(const std::string& name) const { return path_ / name; }

  static std::string text_of(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

 private:
  std::filesystem::path path_;
};

}  // namespace hybrid_trainer::testing
