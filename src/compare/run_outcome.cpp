#include "src/compare/run_outcome.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/core/memory_source.h"
#include "hybrid_trainer/files/folder.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/files/output_file.h"
#include "hybrid_trainer/files/pretty_json.h"
#include "hybrid_trainer/files/strict_json.h"
#include "hybrid_trainer/io/checksum.h"
#include "hybrid_trainer/io/json_fields.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/observability/jsonl_sink.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "src/compare/program_run.h"

namespace hybrid_trainer {
namespace json = boost::json;
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kMostOutputBytes = std::size_t{64} << 20;
constexpr const char* kStandardOutput = "stdout.txt";

json::object summary_of(const fs::path& run) {
  const fs::path file = RunPaths{run.string()}.summary();
  const json::value value = read_json(file);
  if (!value.is_object()) throw DataError(file.string() + ": want an object");
  return value.get_object();
}

/// The value below these keys; null where there is none.
const json::value& value_below(const json::value& from, std::initializer_list<const char*> keys) {
  static const json::value none;
  const json::value* at = &from;
  for (const char* key : keys) {
    at = at->is_object() ? at->get_object().if_contains(key) : nullptr;
    if (at == nullptr) return none;
  }
  return *at;
}

std::optional<double> number_below(const json::value& from,
                                   std::initializer_list<const char*> keys) {
  const json::value& value = value_below(from, keys);
  return value.is_number() ? std::optional(value.to_number<double>()) : std::nullopt;
}

std::int64_t count_below(const json::value& from, std::initializer_list<const char*> keys) {
  return static_cast<std::int64_t>(number_below(from, keys).value_or(0));
}

std::string string_below(const json::value& from, const char* key) {
  const json::value& value = value_below(from, {key});
  return value.is_string() ? std::string(value.get_string()) : "";
}

/// Sum over the phases; none where a phase does not tell it.
std::optional<double> charged_cost(const json::value& summary) {
  double cost = 0;
  for (const Phase phase : kAllPhases)
    cost += number_below(summary, {"phases", name_of(phase), "cost"}).value_or(NAN);
  return std::isnan(cost) ? std::nullopt : std::optional(cost);
}

/// What the steps were charged, in FLOPs of Full steps on batches of the same shape.
double charged_flops(const HybridTrainerConfig& config, const std::string& metrics) {
  const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
  const auto model = make_network(config.model, 0, nowhere);
  double flops = 0;
  for_each_record(metrics, [&](const StepRecord& record) {
    const std::int64_t examples = record.effective_batch;
    const BatchForm form{.examples = examples,
                         .sequence_length = record.tokens / std::max<std::int64_t>(1, examples)};
    flops += record.cost * model->step_flops(model->empty_batch(form, nowhere));
  });
  return flops;
}

std::string checksum_of_losses(const std::string& metrics) {
  Checksum sum;
  for_each_record(metrics, [&](const StepRecord& record) {
    const double losses[] = {record.loss, record.validation_loss.value_or(0)};
    sum.add(losses, sizeof losses);
  });
  return sum.text();
}

/// What the run's own data and machine filled in, filled in.
std::string resolved_text(HybridTrainerConfig config, const HybridTrainerConfig& run) {
  if (config.model.vocabulary == 0) config.model.vocabulary = run.model.vocabulary;
  if (config.exported.dtype == "auto") config.exported.dtype = run.exported.dtype;
  if (config.memory.plan == "auto") {
    config.memory = run.memory;
    config.data.batch_size = run.data.batch_size;
    config.gradient_accumulation = run.gradient_accumulation;
    config.optimizer.state_bits = run.optimizer.state_bits;
  }
  return config_json(config);
}

json::array as_array(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

/// summary.json of a program's run.
json::object program_summary(const std::vector<std::string>& command, const ProgramOutput& output,
                             std::string failure) {
  if (failure.empty()) failure = output.problem;
  if (failure.empty() && output.lines.empty())
    failure = "printed no {\"step\", \"tokens\", \"seconds\", \"validation_loss\"}";
  const char* bad = output.problem.empty() ? "failed" : "diverged";
  json::object summary{{"command", as_array(command)},
                       {"end", failure.empty() ? "finished" : bad},
                       {"failure", failure},
                       {"junk_lines", output.junk_lines},
                       {"first_junk_line", output.first_junk}};
  if (output.lines.empty()) return summary;
  const ProgramLine& last = output.lines.back();
  summary["final_validation_loss"] = last.validation_loss;
  summary["steps"] = last.step;
  summary["tokens"] = last.tokens;
  summary["seconds"] = last.seconds;
  if (last.flops) summary["flops"] = *last.flops;
  return summary;
}

}  // namespace

std::vector<LossPoint> loss_curve(const fs::path& run, std::size_t most) {
  std::vector<LossPoint> points;
  if (fs::exists(run / kStandardOutput)) {
    for (const ProgramLine& line :
         parse_program_output(read_file(run / kStandardOutput, kMostOutputBytes)).lines)
      points.push_back({static_cast<double>(line.tokens), line.seconds, line.validation_loss});
    return points;
  }
  const std::string metrics = RunPaths{run.string()}.metrics();
  if (!fs::exists(metrics)) return points;
  LossPoint at;
  for_each_record(metrics, [&](const StepRecord& record) {
    at.tokens += static_cast<double>(record.tokens);
    at.seconds += record.seconds;
    at.loss = record.loss;
    if (std::isfinite(record.loss)) points.push_back(at);
  });
  const std::size_t merged = (points.size() + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<LossPoint> fewer;
  for (std::size_t begin = 0; begin < points.size(); begin += merged) {
    const std::size_t end = std::min(begin + merged, points.size());
    LossPoint mean;
    for (std::size_t i = begin; i < end; ++i) {
      const double share = 1.0 / static_cast<double>(end - begin);
      mean.tokens += share * points[i].tokens;
      mean.seconds += share * points[i].seconds;
      mean.loss += share * points[i].loss;
    }
    fewer.push_back(mean);
  }
  return fewer;
}

RunOutcome read_outcome(const fs::path& run, const RunPoint& point) {
  const json::value summary = summary_of(run);
  RunOutcome outcome;
  outcome.point = point;
  outcome.steps = count_below(summary, {"steps"});
  outcome.tokens = count_below(summary, {"tokens"});
  outcome.seconds = number_below(summary, {"seconds"}).value_or(0);
  outcome.cost = charged_cost(summary);
  outcome.flops = number_below(summary, {"flops"});
  outcome.predicted_steps = count_below(summary, {"phases", "predict", "steps"});
  outcome.predictions = {count_below(summary, {"predictions", "made"}),
                         count_below(summary, {"predictions", "accepted"}),
                         count_below(summary, {"predictions", "shrunk"}),
                         count_below(summary, {"predictions", "reverted"})};
  const RunPaths paths{run.string()};
  if (outcome.cost && fs::exists(paths.config()) && fs::exists(paths.metrics())) {
    outcome.flops = charged_flops(config_of_run(paths), paths.metrics());
    outcome.losses = checksum_of_losses(paths.metrics());
  }
  const std::string end = string_below(summary, "end");
  outcome.failure = string_below(summary, "failure");
  outcome.diverged = end == "diverged";
  const auto of_average = number_below(summary, {"final_average_validation_loss"});
  const auto loss = of_average ? of_average : number_below(summary, {"final_validation_loss"});
  if (end == "finished" && loss) {
    outcome.loss = loss;
  } else if (outcome.failure.empty()) {
    outcome.failure = end == "finished" ? "its validation loss is not finite" : end;
  }
  if (const std::int64_t junk = count_below(summary, {"junk_lines"}); junk > 0)
    outcome.remark = concat(junk, " lines of its standard output have no loss, the first: ",
                            string_below(summary, "first_junk_line"));
  return outcome;
}

bool is_finished(const fs::path& run, const HybridTrainerConfig& config) {
  const RunPaths paths{run.string()};
  if (!paths.hold_a_run()) return false;
  const HybridTrainerConfig before = config_of_run(paths);
  if (resolved_text(config, before) != config_json(before)) {
    throw ConfigError({concat(run.string(), ": holds a run of another configuration than the ",
                              "spec's; remove that folder, or give another --output")});
  }
  return end_of_run(paths) == "finished";
}

bool is_finished(const fs::path& run, const std::vector<std::string>& command) {
  if (!fs::exists(RunPaths{run.string()}.summary())) return false;
  const json::object summary = summary_of(run);
  return string_below(summary, "end") == "finished" &&
         value_below(summary, {"command"}) == json::value(as_array(command));
}

bool run_program_arm(const ComparisonSpec& spec, const std::vector<std::string>& command,
                     const fs::path& run, const Interruption& interruption) {
  fs::remove_all(run);
  make_folders(run);
  const fs::path output = run / kStandardOutput;
  const std::string failure =
      run_program({command, spec.folder, output, run / "stderr.txt"}, interruption);
  if (!failure.empty() && interruption.requested()) return false;
  ProgramOutput told;
  std::string problem = failure;
  try {
    told = parse_program_output(read_file(output, kMostOutputBytes));
  } catch (const DataError& error) {
    if (problem.empty()) problem = error.what();
  }
  replace_file(RunPaths{run.string()}.summary(),
               pretty_json(program_summary(command, told, problem)) + "\n");
  return true;
}

}  // namespace hybrid_trainer
