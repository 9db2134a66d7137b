#include "src/tools/network_evaluation.h"

#include <algorithm>
#include <boost/json.hpp>
#include <iostream>

#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/tasks/network_task.h"
#include "src/tools/open_model.h"

namespace hybrid_trainer {

void evaluate_network(const TrainedRun& run, const std::string& data, const std::string& precision,
                      bool json, const Stream& stream) {
  const DType dtype = compute_in(*run.network, precision, stream);
  const NetworkScore found = score(run, data, dtype, stream);
  if (!json) {
    std::cout << found.text("\n  ") << "\n";
    return;
  }
  boost::json::object line{{"loss", found.loss}, {"examples", found.examples}};
  if (found.best_loss) line["best_loss"] = *found.best_loss;
  for (const Measure& measure : found.measures) {
    line[measure.name] = measure.sum / std::max(1.0, measure.count);
    if (!is_share(measure)) continue;
    const ShareInterval interval = interval_of_share(measure);
    line[measure.name + "_interval"] = {interval.low, interval.high};
  }
  std::cout << json_line(line) << "\n";
}

}  // namespace hybrid_trainer
