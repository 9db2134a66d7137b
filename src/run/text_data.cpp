#include "src/run/text_data.h"

#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/data/tables/row_files.h"
#include "src/files/checksum.h"
#include "src/model_files/gguf/gguf_model.h"
#include "src/model_files/hugging_face/sentence_folder.h"

namespace hybrid_trainer {

namespace {

constexpr std::uint64_t kTextHoldoutKey = 0x746578747300u;

std::vector<std::string> names_of(const std::vector<ClassLabel>& labels) {
  std::vector<std::string> names;
  for (const ClassLabel& label : labels) names.push_back(label.name);
  return names;
}

std::optional<LabelKind> kind_of(const std::string& name) {
  const auto& names = label_kind_names();
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return {};  // auto
  return static_cast<LabelKind>(found - names.begin());
}

ScoreRange scores_of(const HybridTrainerConfig& config) {
  if (config.objective == "embed" && config.texts.loss == "cosine") return {-1, 1};
  if (config.objective == "rank" && config.texts.labels == "several") return {0, 1};
  return {};
}

class TextReader {
 public:
  TextReader(TextData& data, const HybridTrainerConfig& config) : data_(data), config_(config) {}

  std::vector<TextRow> read(const std::filesystem::path& path, RowSplit split) {
    const ExampleFiles& files = data_.files;
    TextFormat format{.task = text_task_of(config_.objective).value(),
                      .tokenizer = *files.tokenizer.tokenizer(),
                      .sequence_length = config_.data.sequence_length,
                      .longest = text_length(config_),
                      .vocabulary = files.vocabulary,
                      .label_kind = kind_,
                      .class_names = names_,
                      .scores = scores_of(config_),
                      .chat = &files.tokenizer.chat(),
                      .now = files.now,
                      .columns = ColumnNames(config_.data.columns),
                      .called = files.called,
                      .split = split};
    TextRows read = read_text_rows(path, format);
    const std::string name = files.called.empty() ? path.string() : files.called;
    for (const auto& [line, reason, file] : read.refused)
      data_.refused.push_back(concat(read.place(file, line, true), " is refused: ", reason));
    if (read.rows.empty() && !read.refused.empty())
      throw DataError(concat(name, ": every line is refused; ",
                             read.place(read.refused[0].file, read.refused[0].line, false), ": ",
                             read.refused[0].reason));
    for (const std::string& note : read.notes) data_.notes.push_back(concat(name, ": ", note));
    for (const RowFile& file : read.files) data_.checksum += checksum_of_file(file.path);
    kind_ = data_.label_kind = read.label_kind;
    names_ = data_.class_names = read.class_names;
    return std::move(read.rows);
  }
  /// Sets the classes of the labels that are read next; empty: the data's.
  void set_classes(std::optional<LabelKind> kind, std::vector<std::string> names) {
    kind_ = kind;
    names_ = std::move(names);
  }

 private:
  TextData& data_;
  const HybridTrainerConfig& config_;
  std::optional<LabelKind> kind_;
  std::vector<std::string> names_;
};

}  // namespace

std::int64_t longest_row(std::span<const TextRow> rows) {
  std::int64_t longest = 1;
  for (const TextRow& row : rows) {
    longest = std::max(longest, std::ssize(row.tokens));
    while (text_slots(longest) < std::ssize(row.ends)) ++longest;
  }
  return longest;
}

/// Resolves the loss of pairs. Throws ConfigError if the data's pairs do not fit it.
static void set_embedding_loss(HybridTrainerConfig& config, const TextData& data) {
  const bool has_scores = !data.train.empty() && !data.train.front().labels.empty();
  std::string& loss = config.texts.loss;
  if (loss == "auto") loss = has_scores ? "cosent" : "contrastive";
  for (const TextRow& row : data.validation)
    if (row.labels.empty() == has_scores)
      throw ConfigError(
          {concat("texts.loss: got ", loss, ", but the rows for validation have ",
                  has_scores ? "no scores" : "scores", "; want such rows as for training")});
  if (has_scores == (loss != "contrastive")) return;
  throw ConfigError({concat("texts.loss: got ", loss,
                            has_scores ? ", but the rows have scores; want cosent or cosine, or "
                                         "--columns score= to leave the scores out"
                                       : ", but the rows have no scores; want contrastive")});
}

std::optional<TextTask> text_task_of(const std::string& objective) {
  for (const TextTask task :
       {TextTask::kClassify, TextTask::kEmbed, TextTask::kRank, TextTask::kReward})
    if (objective == name_of(task)) return task;
  return {};
}

void take_pipeline(const ModelFolder& folder, HybridTrainerConfig& config) {
  if (folder.is_gguf()) {
    config.model.pooling = gguf_pooling(folder.gguf());
    if (config.model.pooling.empty()) return;
    config.model.dense = text_of(gguf_dense(folder.gguf()));
    config.model.language_head = false;
    return;
  }
  if (!has_sentence_pipeline(folder)) return;
  const SentencePipeline pipeline = read_sentence_pipeline(folder);
  if (!pipeline.transformer.empty())
    throw DataError(concat(folder.string(), ": its modules.json names the model's folder ",
                           pipeline.transformer, "; give ",
                           shell_path(folder.path() / pipeline.transformer)));
  config.model.pooling = pipeline.pooling;
  config.model.dense = text_of(pipeline.dense);
  config.model.language_head = false;
  config.texts.max_length = pipeline.max_length;
  if (pipeline.dimensions > 0 && pipeline.dimensions < config.model.embedding_width())
    config.texts.dimensions = std::to_string(pipeline.dimensions);
}

static void take_task_of_number(const ModelFolder& folder, const ModelFolder& adapter,
                                HybridTrainerConfig& config) {
  const ModelConfig& model = config.model;
  const bool is_named = model.labels[0].name == kRewardLabel || !model.problem_type.empty();
  std::string scores = adapter.empty() ? "" : cross_encoder_activation(adapter);
  if (scores.empty() && (adapter.empty() || !is_named)) scores = cross_encoder_activation(folder);
  if (scores.empty() && !is_named && model.bidirectional)
    scores = folder.is_gguf() ? "identity" : "sigmoid";  // as llama.cpp and sentence-transformers
  if (!scores.empty())
    config.objective = "rank";
  else if (model.problem_type.empty())
    config.objective = "reward";
  if (config.objective != "classify")
    config.texts.labels = scores == "sigmoid" ? "several" : "regression";
}

void take_text_task(const ModelFolder& folder, HybridTrainerConfig& config,
                    const ModelFolder& adapter) {
  if (config.model.pooling.empty()) take_pipeline(folder, config);
  if (!config.pools()) return;
  const std::string& type = config.model.problem_type;
  config.objective = config.model.labels.empty() ? "embed" : "classify";
  config.texts.labels = type == "regression"                   ? "regression"
                        : type == "multi_label_classification" ? "several"
                                                               : "single";
  const bool is_number = config.model.labels.size() == 1 && config.texts.labels != "several";
  if (is_number) take_task_of_number(folder, adapter, config);
  if (!config.model.labels.empty()) config.texts.max_length = max_class_text(folder);
  config.data.layout = "packed";
  config.data.sequence_length = std::min(config.data.sequence_length, config.model.context);
}

std::string objective_of_folder(const ModelFolder& folder, const ModelConfig& model) {
  HybridTrainerConfig config;
  config.model = model;
  take_text_task(folder, config);
  return config.objective;
}

std::int64_t text_limit(const HybridTrainerConfig& config) {
  const std::int64_t most = config.model.context;
  return config.texts.max_length == 0 ? most : std::min(most, config.texts.max_length);
}

std::int64_t text_length(const HybridTrainerConfig& config) {
  return std::min(text_limit(config), config.data.sequence_length);
}

/// Gives each example the weight of its class as its label: n / (classes · examples of the class),
/// as scikit-learn's class_weight="balanced" does. Counts the training examples.
static void set_class_weights(TextData& data) {
  std::vector<double> counts(data.class_names.size());
  for (const TextRow& row : data.train)
    ++counts.at(static_cast<std::size_t>(row.class_index.value()));
  const double mean =
      static_cast<double>(data.train.size()) / static_cast<double>(data.class_names.size());
  for (auto* rows : {&data.train, &data.validation})
    for (TextRow& row : *rows) {
      const double count = counts.at(static_cast<std::size_t>(row.class_index.value()));
      row.labels = {static_cast<float>(mean / std::max(1.0, count))};
    }
}

static TextData read_rows(const ExampleFiles& files, const HybridTrainerConfig& config) {
  TextData data{.files = files};
  TextReader reader(data, config);
  const auto known = names_of(config.model.labels);
  const bool has_classes = config.objective == "classify" && !known.empty();
  reader.set_classes(kind_of(config.texts.labels), {});
  const RowSplit split = files.measured
                             ? first_split(files.examples, {RowSplit::kTest, RowSplit::kValidation})
                             : RowSplit::kTrain;
  std::vector<TextRow> rows = reader.read(files.examples, split);
  const bool is_known = has_classes && std::ranges::all_of(data.class_names, [&](auto& name) {
                          return std::ranges::count(known, name) > 0;
                        });
  const bool has_own = has_classes && files.measured;  // an evaluation, which needs the model's
  if ((is_known || has_own) && data.class_names != known &&
      data.label_kind != LabelKind::kRegression) {
    data = {.files = files};
    reader.set_classes(data.label_kind, known);
    rows = reader.read(files.examples, split);
  }
  data.form = concat(rows.size(), " rows");
  const bool has_validation =
      !files.measured && !row_files(files.examples, RowSplit::kValidation).empty();
  if (!files.validation.empty()) {
    data.validation = reader.read(files.validation, RowSplit::kTrain);
  } else if (has_validation) {
    data.validation = reader.read(files.examples, RowSplit::kValidation);
  }
  if (!data.validation.empty()) {
    data.train = std::move(rows);
    return data;
  }
  auto parts = divided(std::move(rows), config.data.validation_fraction, kTextHoldoutKey);
  data.train = std::move(parts.train);
  data.validation = std::move(parts.validation);
  data.validates_on_training_rows = parts.are_same;
  return data;
}

TextData read_text_data(const ExampleFiles& files, const HybridTrainerConfig& config) {
  TextData data = read_rows(files, config);
  if (config.objective != "classify" || config.texts.loss != "balanced") return data;
  if (data.label_kind != LabelKind::kSingle)
    throw ConfigError(
        {concat("texts.loss: got balanced, but the data's labels are ",
                label_kind_names()[static_cast<std::size_t>(data.label_kind)],
                ", and class weights need exactly one class per example; want auto")});
  set_class_weights(data);
  return data;
}

PackedTexts::Settings text_packing(const HybridTrainerConfig& config, const Tokenizer& tokenizer) {
  return {.sequence_length = config.data.sequence_length,
          .padding = tokenizer.end_of_text().value_or(0),
          .has_types = config.model.token_types > 1,
          .has_classes = config.texts.has_class(config.objective),
          .labels = config.texts.numbers(config.objective, config.model)};
}

std::int64_t fitted_length(std::span<const TextRow> rows, std::int64_t usual) {
  return std::max(usual, longest_row(rows));
}

void set_text_labels(HybridTrainerConfig& config, const TextData& data) {
  if (config.objective == "embed") return set_embedding_loss(config, data);
  std::vector<std::string> names = data.class_names;
  const auto problem = [&] {
    return config.texts.labels == "single"    ? "single_label_classification"
           : config.texts.labels == "several" ? "multi_label_classification"
                                              : "regression";
  };
  if (config.objective == "classify") {
    config.texts.labels = label_kind_names()[static_cast<std::size_t>(data.label_kind)];
  } else if (config.objective == "rank") {
    const bool are_shares = std::ranges::all_of(data.train, [](const TextRow& row) {
      return row.labels.empty() || (row.labels[0] >= 0 && row.labels[0] <= 1);
    });
    config.texts.labels = are_shares ? "several" : "regression";
  }
  config.model.problem_type = config.objective == "classify" ? problem() : "";
  const bool rewards = config.objective == "reward";
  if (names.empty()) names = {rewards ? kRewardLabel : "LABEL_0"};
  if (config.objective != "classify" || data.label_kind == LabelKind::kRegression) {
    const auto& own = config.model.labels;  // of the folder's head
    if (own.size() == 1 && (own[0].name == kRewardLabel) == rewards) return;
  }
  config.model.labels.clear();
  for (const std::string& name : names) config.model.labels.push_back({name});
}

}  // namespace hybrid_trainer
