#include <algorithm>
#include <cmath>
#include <string_view>

#include "hybrid_trainer/core/batch_upload.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/pools.h"
#include "hybrid_trainer/core/units.h"
#include "hybrid_trainer/core/warning.h"
#include "hybrid_trainer/generation/evaluation.h"
#include "hybrid_trainer/nn/graph_loss.h"
#include "hybrid_trainer/tasks/network_task.h"

namespace hybrid_trainer {
namespace {

void add(std::vector<Measure>& sums, const std::vector<Measure>& more) {
  for (const Measure& measure : more) {
    const auto sum = std::ranges::find(sums, measure.name, &Measure::name);
    if (sum == sums.end()) {
      sums.push_back(measure);
    } else {
      sum->sum += measure.sum;
      sum->count += measure.count;
    }
  }
}

/// In `parts` of the batch, of which there become twice as many where memory does not hold one.
std::vector<Measure> measures_of(Network& network, const Batch& batch, const Pass& pass,
                                 std::int64_t& parts, const Stream& stream) {
  for (;;) {
    try {
      std::vector<Measure> sums;
      const std::int64_t size = batch.size() / parts;
      for (std::int64_t part = 0; part < parts; ++part)
        add(sums, network.wait_for_measures(batch.examples(part * size, (part + 1) * size), pass,
                                            stream));
      return sums;
    } catch (const OutOfMemory&) {
      if (batch.size() % (2 * parts) != 0) throw;
      parts *= 2;
      stream.synchronize();
      stream.pool()->trim();
    }
  }
}

std::vector<Measure> measures_of(Network& network, EvaluationBatches& batches, const Pass& pass,
                                 const Stream& stream) {
  std::vector<Measure> sums;
  BatchUpload upload;
  std::int64_t parts = 1;
  for (std::int64_t i = 0; i < batches.batches(); ++i) {
    const Batch batch = upload.to_device(batches.batch(i), stream);
    if (batch.size() % parts != 0) parts = batch.size();  // the last one may be smaller
    add(sums, measures_of(network, batch, pass, parts, stream));
  }
  return sums;
}

/// With the share of the variance that a regression explains in place of what it is made of.
std::vector<Measure> with_explained_variance(const std::vector<Measure>& sums) {
  constexpr std::string_view kTarget = ".target", kSquare = ".target_square";
  std::vector<Measure> measures;
  for (const Measure& measure : sums) {
    if (!measure.name.ends_with(kTarget)) {
      if (!measure.name.ends_with(kSquare)) measures.push_back(measure);
      continue;
    }
    const std::string loss = measure.name.substr(0, measure.name.size() - kTarget.size());
    const double share = graph::r_squared(sums, loss);
    if (std::isfinite(share)) measures.push_back({loss + ".r_squared", share, 1});
  }
  return measures;
}

}  // namespace

ShareInterval interval_of_share(const Measure& measure) {
  constexpr double kDeviations = 1.959963985;  // of the normal distribution, 95 % within
  const double n = std::max(1.0, measure.count), share = measure.sum / n;
  const double square = kDeviations * kDeviations, whole = 1 + square / n;
  const double middle = (share + square / (2 * n)) / whole;
  const double half =
      kDeviations / whole * std::sqrt(share * (1 - share) / n + square / (4 * n * n));
  const bool is_none = measure.sum <= 0, is_all = measure.sum >= n;  // not as rounding has it
  return {is_none ? 0 : middle - half, is_all ? 1 : middle + half};
}

bool is_share(const Measure& measure) { return measure.name.ends_with("accuracy"); }

std::string NetworkScore::text(const std::string& between) const {
  std::string text = concat("loss ", brief(loss), " over ", examples, " examples");
  if (best_loss) text += concat(", the best that can be reached is ", brief(*best_loss));
  const auto is_loss = [](const Measure& measure) { return measure.name.ends_with(".loss"); };
  const bool has_one_loss = std::ranges::count_if(measures, is_loss) == 1;
  for (const Measure& measure : measures) {
    if (has_one_loss && is_loss(measure)) continue;  // said already
    text += concat(between, measure.name, " ", brief(measure.sum / std::max(1.0, measure.count)));
    if (!is_share(measure)) continue;
    const ShareInterval interval = interval_of_share(measure);
    text += concat(" (95 % within ", units::fixed(interval.low, 3), " to ",
                   units::fixed(interval.high, 3), ")");
  }
  return text;
}

NetworkScore score(Network& network, const NetworkData& data, const HybridTrainerConfig& config,
                   DType dtype, const Stream& stream) {
  const Stream host(make_host_pool(stream.device()));  // not the run's, whose peak is told
  const auto batches = data.evaluation(config, host);
  const EvaluationResult result = evaluate(network, *batches, dtype, stream);
  const Pass pass{.training = false, .dtype = dtype};
  return {.loss = result.loss,
          .examples = result.tokens,
          .best_loss = data.best_loss(config),
          .measures = data.in_own_units(
              with_explained_variance(measures_of(network, *batches, pass, stream)), config)};
}

NetworkScore score(const TrainedRun& run, const std::filesystem::path& data, DType dtype,
                   const Stream& stream, const NetworkDataKinds& kinds) {
  const bool is_own = data.empty() && !run.data.empty();
  const bool is_of_run = is_own && RunPaths{run.folder.string()}.hold_a_run();
  const RunData own = is_of_run ? data_of_run(RunPaths{run.folder.string()}) : RunData{};
  const auto opened = opened_data({.config = run.config,
                                   .data = data.empty() ? run.data : data,
                                   .validation = own.validation,
                                   .model = run.folder,
                                   .is_trained = true,
                                   .is_measured = !data.empty()},
                                  kinds);
  if (is_of_run && opened->checksum() != own.checksum)
    throw DataError(run.data.string() + " is not what the run was trained on: it has changed");
  for (const std::string& note : opened->notes()) warn(run.folder.string(), note);
  return score(*run.network, *opened, run.config, dtype, stream);
}

}  // namespace hybrid_trainer
