#pragma once

#include <string>

#include "hybrid_trainer/observability/step_record.h"

namespace hybrid_trainer {

/// Receives what a run reports. The trainer calls write once per step, in order, from one thread.
class MetricSink {
 public:
  virtual ~MetricSink() = default;
  virtual void write(const StepRecord& record) = 0;
  /// One line of text for a person ("checkpoint saved at step 500"). Numeric sinks ignore it.
  virtual void tell(const std::string& text) = 0;
  /// The run finished or stopped; nothing is written afterwards.
  virtual void finish() = 0;
};

}  // namespace hybrid_trainer
