#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/model_files/hugging_face/sentence_folder.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/text_data.h"
#include "src/run/text_outputs.h"
#include "src/tasks/task_kind.h"

namespace hybrid_trainer {

namespace {

void require_text_head(const TrainedRun& run, const std::string& folder) {
  if (run.config.pools()) return;
  if (run.config.model.bidirectional)
    throw UsageError(concat(folder, " predicts masked tokens, not classes or embeddings of texts; ",
                            "fine-tune it with hybrid finetune --task classify or --task embed"));
  throw UsageError(concat(folder, " writes text; use hybrid sample ", shell_path(folder)));
}

TextTask task_of(const HybridTrainerConfig& config) {
  return text_task_of(config.objective).value();
}

std::vector<std::string> class_names(const ModelConfig& model, TextTask task) {
  std::vector<std::string> names;
  if (task != TextTask::kClassify) return names;
  for (const ClassLabel& label : model.labels) names.push_back(label.name);
  return names;
}

LabelKind label_kind_of(const HybridTrainerConfig& config) {
  const std::string& labels = config.texts.labels;
  return labels == "several"      ? LabelKind::kSeveral
         : labels == "regression" ? LabelKind::kRegression
                                  : LabelKind::kSingle;
}

/// Returns the prompt that begins all texts in the folder's pipeline; none for a run, which was
/// trained without one.
std::vector<std::string> prompts_of(const TrainedRun& run) {
  const bool is_run = RunPaths{run.folder.string()}.contains_run();
  if (is_run || run.sentence_folder.empty() || !has_sentence_pipeline(run.sentence_folder))
    return {};
  const SentencePipeline pipeline = read_sentence_pipeline(run.sentence_folder);
  if (pipeline.default_prompt.empty()) return {};
  return {pipeline.prompts.at(pipeline.default_prompt)};
}

/// Throws DataError for an unusable row, because predictions must be in the order of the rows.
std::vector<TextRow> rows_of(const TrainedRun& run, const PredictionRequest& requested,
                             const std::vector<std::string>& prompts) {
  const HybridTrainerConfig& config = run.config;
  const TextTask task = task_of(config);
  const TextFormat format{.task = task,
                          .tokenizer = *run.tokenizer,
                          .sequence_length = config.model.context,
                          .longest = text_limit(config),
                          .vocabulary = config.model.vocabulary,
                          .needs_labels = false,
                          .label_kind = label_kind_of(config),
                          .class_names = class_names(config.model, task),
                          .prompts = prompts,
                          .chat = &run.tokenizer_folder.chat(),
                          .now = std::time(nullptr),
                          .columns = ColumnNames(config.data.columns),
                          .called = requested.called};
  TextRows read = read_text_rows(requested.data, format);
  const std::string name = requested.called.empty() ? requested.data.string() : requested.called;
  if (!read.refused.empty()) {
    const ReadRows::Refusal& first = read.refused.front();
    throw DataError(
        concat(name, ": ", read.place(first.file, first.line, false), " is refused: ", first.reason,
               "; predictions need all rows, so correct or remove ",
               read.refused.size() == 1 ? std::string("it")
                                        : concat("the ", read.refused.size(), " refused rows")));
  }
  for (const std::string& note : read.notes) requested.report(concat(name, ": ", note));
  return std::move(read.rows);
}

Prediction prediction_of(std::span<const float> outputs, const HybridTrainerConfig& config,
                         const EmbeddingSteps& steps) {
  Prediction found{.numbers = {outputs.begin(), outputs.end()}};
  const TextTask task = task_of(config);
  const LabelKind kind = label_kind_of(config);
  if (task == TextTask::kEmbed) {
    found.numbers = embedding_of(outputs, steps);
    found.fields["embedding"] = decimals(found.numbers);
  } else if (task == TextTask::kClassify && kind == LabelKind::kSingle) {
    found.fields = class_fields(outputs, config.model.labels);
  } else if (task == TextTask::kClassify && kind == LabelKind::kSeveral) {
    found.fields = label_fields(outputs, config.model.labels);
  } else {
    const bool is_probability = task == TextTask::kRank && kind == LabelKind::kSeveral;
    found.fields["score"] = decimal(is_probability ? sigmoid(outputs[0]) : outputs[0]);
  }
  return found;
}

}  // namespace

void predict_texts(const TrainedRun& run, const PredictionRequest& requested, DType dtype,
                   const Stream& stream, const PredictionHandler& use) {
  require_text_head(run, requested.folder);
  if (!run.tokenizer)
    throw DataError(
        concat(requested.folder, " has no tokenizer to encode ", requested.data.string()));
  PackedTexts::Settings packing = text_packing(run.config, *run.tokenizer);
  packing.has_classes = false;
  packing.labels = 0;
  const bool embeds = task_of(run.config) == TextTask::kEmbed;
  const EmbeddingSteps steps = embeds ? embedding_steps_of(run) : EmbeddingSteps();
  const auto prompts = embeds ? prompts_of(run) : std::vector<std::string>();
  std::vector<TextRow> rows = rows_of(run, requested, prompts);
  packing.sequence_length = fitted_length(rows, usual_row_length(run.config.model));
  const PackedTexts texts(std::move(rows), packing);
  const TextOutputs outputs =
      text_outputs(run.model(), texts, run.config.data.batch_size, dtype, stream);
  for (std::int64_t text = 0; text < outputs.values.size(0); ++text)
    use(prediction_of(outputs.of(text), run.config, steps));
}

}  // namespace hybrid_trainer
