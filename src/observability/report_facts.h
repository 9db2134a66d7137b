#pragma once

#include <string>

#include "hybrid_trainer/observability/run_summary.h"

namespace hybrid_trainer {

/// "4.2 %"
std::string percent(double part, double whole);

/// Facts about a run, as HTML: entries of a definition list.
std::string run_facts(const RunSummary& summary);
/// The end of the loss scale; "" where no phase computed in fp16.
std::string loss_scale_facts(const RunSummary& summary);
/// What came of predictions or of late updates: a list of its own.
std::string prediction_facts(const RunSummary& summary);
/// What was done about divergence: a list of its own; "" where nothing went wrong.
std::string recovery_facts(const RunSummary& summary);

}  // namespace hybrid_trainer
