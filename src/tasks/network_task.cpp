#include "src/tasks/network_task.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "hybrid_trainer/config/phase_precision.h"
#include "hybrid_trainer/core/batch.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/lora.h"
#include "hybrid_trainer/models/model_family.h"
#include "hybrid_trainer/nn/graph_part.h"
#include "src/core/messages.h"
#include "src/generation/evaluation.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "src/run/batch_parts.h"
#include "src/run/rank_statistics.h"
#include "src/run/run_export.h"
#include "src/run/run_settings.h"
#include "src/trainer/run_model.h"

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

std::vector<Measure> measures_of(Network& network, const OrderedBatches& batches, const Pass& pass,
                                 const Stream& stream) {
  std::vector<Measure> sums;
  BatchUpload upload;
  BatchParts parts(stream);
  for (std::int64_t i = 0; i < batches.batches(); ++i)
    parts.run(upload.to_device(batches.batch(i), stream), [&](std::int64_t, const Batch& part) {
      add(sums, network.wait_for_measures(part, pass, stream));
    });
  return sums;
}

/// Replaces a regression's raw sums by its explained variance.
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

/// Returns "trident: 1.20 M parameters, of which 0.30 M are trained".
std::string network_line(const ModelFamily& family, LossModel& network) {
  std::int64_t trained = 0;
  for (const Parameter* parameter : trainable_parameters(network)) trained += parameter->elements();
  const std::int64_t all = network.parameter_count();
  return concat(
      family.title, ": ", units::millions(all), " parameters",
      trained < all ? concat(", of which ", units::millions(trained), " are trained") : "");
}

std::string network_batch_line(const HybridTrainerConfig& config) {
  const std::int64_t parts = config.gradient_accumulation.micro_batches;
  return concat(
      config.effective_batch(), " examples per step",
      parts > 1 ? concat(" (", parts, " micro-batches of ", config.data.batch_size, ")") : "");
}

void refuse_settings_of_language(const HybridTrainerConfig& config) {
  std::vector<std::string> problems;
  const std::string why = concat(", but a ", config.model.family, " is not a language model; ");
  if (config.objective != "next_token")
    problems.push_back(concat("objective: got ", config.objective, why, "leave it out"));
  if (!config.stages.empty())
    problems.push_back(
        concat("stages: got some", why, "its examples have a fixed shape, so leave stages out"));
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

std::filesystem::path validation_of(const TrainingRunSettings& settings) {
  if (!settings.validation.empty() || !resumes(settings)) return settings.validation;
  return data_of_run(RunPaths{settings.run.string()}).validation;
}

/// A network other than a language model, trained on the data of its family.
class NetworkTask final : public Task {
 public:
  NetworkTask(const TrainingRunSettings& settings, const NetworkDataKinds& kinds,
              const ReadInputs& read)
      : settings_(with_base(settings)),
        model_(opened_model(settings_, read.model)),
        data_(read.network ? read.network : network_data(settings_, kinds)) {}

  HybridTrainerConfig completed(HybridTrainerConfig config) override {
    if (model_)
      config.model =
          with_training_of(read_hugging_face_model_config(*model_, 0, registry()), config.model);
    if (config.exported.dtype == "auto") config.exported.dtype = "fp32";
    config = data_->completed(std::move(config));
    config.validate(registry());
    refuse_settings_of_language(config);
    if (!settings_.export_to.empty()) check_hugging_face_export(config.model, registry());
    check_model(config, registry());
    return config;
  }
  std::unique_ptr<LossModel> make_model(const HybridTrainerConfig& config,
                                        MemoryPlaces& places) override {
    base_ = base_of_run(run(), model_);
    return make_run_model(config, base_, places, registry());
  }
  DatasetPart training(const HybridTrainerConfig& config) const override {
    return data_->training(config);
  }
  DatasetPart validation(const HybridTrainerConfig& config) const override {
    return data_->validation(config);
  }
  void write_export(const RunPaths& run, const std::filesystem::path& output) const override {
    const Stream stream(MemoryPool::create("device"));
    const bool freezes = config_of_run(run).freezes();
    const TrainedRun trained =
        load_trained_run(run.root, stream, registry(), {},
                         freezes ? std::optional<std::string>("fp32") : std::nullopt);
    merge_adapters(*trained.network, stream);
    export_model(trained, output, {}, stream);
  }
  std::vector<NamedText> facts() const override {
    const auto base = base_of_run(run(), model_);
    return {{"the initial model", base ? identity_of_base(*base) : ""},
            {"the data's checksum", data_->checksum()}};
  }
  void check_same(const RunPaths& run) const override {
    const std::string before = data_of_run(run).checksum;
    if (before == data_->checksum()) return;
    throw DataError(other_data_message(settings_.data, data_of_run(run).folder, ""));
  }
  void write_files(const RunPaths& own, const RunPaths& run, const HybridTrainerConfig& config,
                   bool resumes) const override {
    if (config.freezes() && base_) write_run_base(own, *base_);
    RunData data{.folder = settings_.data,
                 .checksum = data_->checksum(),
                 .validation = validation_of(settings_)};
    if (base_) data.base = *base_;
    data.command = resumes ? data_of_run(run).command : settings_.command;
    if (!base_ && resumes) data.base = data_of_run(run).base;
    write_run_files(own, config, data);
    data_->write_files(own.root);
  }
  std::vector<std::string> notes(bool /*begins*/) const override { return data_->notes(); }
  std::vector<NamedText> settings(const HybridTrainerConfig& config,
                                  LossModel& model) const override {
    return {{"model", network_line(find_family(config.model.family, registry()), model)},
            {"data", data_->description()},
            {"batch", network_batch_line(config)}};
  }
  std::vector<std::string> closing(const HybridTrainerConfig& config, LossModel& model,
                                   const Stream& stream) const override {
    const PhasePrecision precision(config.mixed_precision, config.model.width, stream.device());
    return {score(static_cast<Network&>(model), *data_, config, precision.of(Phase::kCorrect).dtype,
                  stream)
                .text()};
  }
  const ModelRegistry* simulated_by() const override { return settings_.registry; }

 private:
  RunPaths run() const { return RunPaths{settings_.run.string()}; }
  const ModelRegistry& registry() const { return *settings_.registry; }
  TrainingRunSettings settings_;
  std::optional<ModelFolder> model_;  // opened settings_.init_from
  std::shared_ptr<const NetworkData> data_;
  std::optional<ModelFolder> base_;  // model with the initial weights
};

ShareInterval interval_of_share(const Measure& measure) {
  return wilson_interval(measure.sum, std::max(1.0, measure.count));
}

bool is_share(const Measure& measure) { return measure.name.ends_with("accuracy"); }

}  // namespace

std::string NetworkScore::text(const std::string& between) const {
  std::string text = concat("loss ", brief(loss), " over ", examples, " examples");
  if (best_loss) text += concat(", the lowest possible loss is ", brief(*best_loss));
  const auto is_loss = [](const Measure& measure) { return measure.name.ends_with(".loss"); };
  const bool has_one_loss = std::ranges::count_if(measures, is_loss) == 1;
  for (const Measure& measure : measures) {
    if (has_one_loss && is_loss(measure)) continue;  // already included
    text += concat(between, measure.name, " ", brief(measure.sum / std::max(1.0, measure.count)));
    if (!is_share(measure)) continue;
    const ShareInterval interval = interval_of_share(measure);
    text += concat(" (95 % interval ", units::fixed(interval.low, 3), " to ",
                   units::fixed(interval.high, 3), ")");
  }
  return text;
}

boost::json::object NetworkScore::json() const {
  boost::json::object found{{"loss", loss}, {"examples", examples}};
  if (best_loss) found["best_loss"] = *best_loss;
  for (const Measure& measure : measures) {
    found[measure.name] = measure.sum / std::max(1.0, measure.count);
    if (!is_share(measure)) continue;
    const ShareInterval interval = interval_of_share(measure);
    found[measure.name + "_interval"] = {interval.low, interval.high};
  }
  return found;
}

NetworkScore score(Network& network, const NetworkData& data, const HybridTrainerConfig& config,
                   DType dtype, const Stream& stream) {
  const Stream host(make_host_pool(stream.device()));  // not counted in the run's peak memory
  const OrderedBatches batches(data.validation(config), config.data.batch_size, host);
  const EvaluationResult result = evaluate(network, batches, dtype, stream);
  const Pass pass{.training = false, .dtype = dtype};
  return {.loss = result.loss,
          .examples = result.tokens,
          .best_loss = data.best_loss(config),
          .measures = data.in_original_units(
              with_explained_variance(measures_of(network, batches, pass, stream)), config)};
}

NetworkScore score(const TrainedRun& run, const std::filesystem::path& data, DType dtype,
                   const Stream& stream, const NetworkDataKinds& kinds) {
  const bool is_own = data.empty() && !run.data.empty();
  const bool is_of_run = is_own && RunPaths{run.folder.string()}.contains_run();
  const RunData own = is_of_run ? data_of_run(RunPaths{run.folder.string()}) : RunData{};
  const auto opened = opened_data({.config = run.config,
                                   .data = data.empty() ? run.data : data,
                                   .validation = own.validation,
                                   .model = run.folder,
                                   .is_trained = true,
                                   .is_measured = !data.empty()},
                                  kinds);
  if (is_of_run && opened->checksum() != own.checksum)
    throw DataError(run.data.string() + " has changed since the run began; restore it");
  for (const std::string& note : opened->notes()) warn(run.folder.string(), note);
  return score(*run.network, *opened, run.config, dtype, stream);
}

void predict_examples(const TrainedRun& run, const PredictionRequest& requested, DType dtype,
                      const Stream& stream, const PredictionHandler& use) {
  const auto opened = opened_data({.config = run.config,
                                   .data = requested.data,
                                   .model = run.folder,
                                   .is_trained = true,
                                   .is_measured = true,
                                   .is_predicted = true});
  for (const std::string& note : opened->notes()) warn(run.folder.string(), note);
  const Pass pass{.training = false, .dtype = dtype};
  const Stream host(make_host_pool(stream.device()));
  const OrderedBatches batches(opened->validation(run.config), run.config.data.batch_size, host);
  BatchUpload upload;
  BatchParts parts(stream);
  const NetworkData::PredictionMaker make = opened->prediction_maker(run.config);
  std::int64_t number = 0;
  for (std::int64_t i = 0; i < batches.batches(); ++i) {
    parts.run(upload.to_device(batches.batch(i), stream), [&](std::int64_t, const Batch& part) {
      const std::vector<NamedTensor> found = run.network->wait_for_predictions(part, pass, stream);
      if (found.empty())
        throw UsageError(concat(run.folder.string(), " is a ", run.config.model.family,
                                ", which has no predictions to write"));
      for (std::int64_t example = 0; example < part.size(); ++example) {
        std::vector<NamedTensor> outputs;
        for (const auto& [name, all] : found) {
          const std::int64_t rows = all.size(0) / part.size();
          outputs.push_back({name, all.rows(example * rows, (example + 1) * rows)});
        }
        use(make(number++, outputs));
      }
    });
  }
}

DataFacts NetworkData::example(std::int64_t number, const HybridTrainerConfig& config) const {
  throw UsageError(concat("example ", number, " of a ", config.model.family,
                          ": its generated data has no lines or rows to show"));
}

NetworkData::PredictionMaker NetworkData::prediction_maker(const HybridTrainerConfig&) const {
  return [](std::int64_t /*number*/, const std::vector<NamedTensor>& outputs) {
    Prediction found;
    for (const auto& [name, tensor] : outputs) {
      const std::span<const float> values{tensor.data<float>(),
                                          static_cast<std::size_t>(tensor.elements())};
      found.numbers.insert(found.numbers.end(), values.begin(), values.end());
      found.fields[name] = decimals(values);
    }
    return found;
  };
}

const NetworkDataKinds& network_data_kinds() {
  static const NetworkDataKinds kinds{
      {"vit", open_pictures}, {"trident", trident_data}, {"series", series_data}};
  return kinds;
}

std::unique_ptr<NetworkData> opened_data(const NetworkDataSource& source,
                                         const NetworkDataKinds& kinds) {
  const std::string& family = source.config.model.family;
  const auto kind = std::ranges::find(kinds, family, &NetworkDataKind::family);
  if (kind != kinds.end()) return kind->open(source);
  throw UsageError(
      concat("model.family: got ", family,
             ", which has no built-in data; train it with a custom task (docs/ARCHITECTURE.md)"));
}

std::unique_ptr<Task> network_task(const TrainingRunSettings& settings,
                                   const NetworkDataKinds& kinds, const ReadInputs& read) {
  return std::make_unique<NetworkTask>(settings, kinds, read);
}

std::shared_ptr<const NetworkData> network_data(const TrainingRunSettings& settings,
                                                const NetworkDataKinds& kinds) {
  const std::filesystem::path model =
      resumes(settings) ? settings.run : settings.init_from.value_or(std::filesystem::path());
  return opened_data({.config = settings.config,
                      .data = settings.data,
                      .validation = validation_of(settings),
                      .model = model,
                      .is_trained = resumes(settings)},
                     kinds);
}

}  // namespace hybrid_trainer
