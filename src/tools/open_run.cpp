#include "src/tools/open_run.h"

#include <iostream>

#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {

TrainedRun open_run(const std::string& folder, const Stream& stream) {
  set_threads(processor_info().cores);
  TrainedRun run = load_trained_run(folder, stream);
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << warning << "\n";
  return run;
}

}  // namespace hybrid_trainer
