#pragma once

#include <fstream>
#include <string>

#include "src/observability/jsonl_sink.h"
#include "tests/observability/records.h"

namespace hybrid_trainer::testing {

/// Run folders as written by a trainer, without a trainer.
class WatchTest : public Folder {
 protected:
  std::filesystem::path begin_run(const std::string& name) const {
    const std::filesystem::path run = file(name);
    std::filesystem::create_directories(run);
    std::ofstream(run / "config.json")
        << R"({"training": {"steps": 40}, "memory": {"device_budget": "1MB"}})";
    std::ofstream(run / ".lock") << "1";
    std::ofstream(run / "metrics.jsonl");
    return run;
  }
  static StepRecord step_of(std::int64_t step) {
    const auto phase = static_cast<Phase>(std::min<std::int64_t>(3, step / 8));
    StepRecord record = full_record(step, phase);
    record.loss = 4 / (1 + 0.1 * static_cast<double>(step));
    if (step % 10 != 0) record.validation_loss.reset();
    if (step % 8 != 0) {
      record.event.clear();
      record.decision = Decision::kNone;
      record.kept_fraction.reset();
    }
    return record;
  }
  static void write_steps(const std::filesystem::path& run, std::int64_t first, std::int64_t last) {
    JsonlSink sink(run / "metrics.jsonl");
    for (std::int64_t step = first; step <= last; ++step) sink.write(step_of(step));
  }
};

}  // namespace hybrid_trainer::testing
