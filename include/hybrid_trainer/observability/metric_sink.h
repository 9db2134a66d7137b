#pragma once

#include <string>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Takes what a run reports. The trainer calls write once a step, in step order, from one thread.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const StepRecord& record) = 0;
  /// One line of text for a person ("checkpoint saved at step 500"). A sink of numbers leaves it
  /// out.
  virtual void note(const std::string& text) = 0;
  /// The run ended or stopped; nothing is written after it.
  virtual void finish() = 0;
};

}  // namespace hybrid_trainer
