#include "src/tools/open_run.h"

#include <iostream>

#include "hybrid_trainer/core/processor.h"

namespace hybrid_trainer {

void add_average_option(po::options_description& options, bool& average) {
  options.add_options()("average", po::bool_switch(&average),
                        "Read the mean of the weights (training.average_weights), not the last.");
}

TrainedRun open_run(const std::string& folder, const Stream& stream, RunWeights weights) {
  set_threads(processor_info().cores);
  TrainedRun run = load_trained_run(folder, stream, model_families(), weights);
  for (const std::string& warning : run.warnings) std::cerr << "warning: " << warning << "\n";
  return run;
}

}  // namespace hybrid_trainer
