#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/nn/text_head.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/config/config_checks.h"
#include "src/core/messages.h"
#include "src/files/checkpoint.h"
#include "src/model_files/hugging_face/config_files.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/run_files.h"
#include "src/run/run_settings.h"
#include "src/run/speech/clips.h"
#include "src/run/text_data.h"
#include "src/tasks/network_task.h"
#include "src/tools/commands.h"
#include "src/tools/options.h"
#include "src/tools/standard_input.h"
#include "src/tools/train/starting_options.h"
#include "src/tools/train/train_output.h"
#include "src/tools/train/training_ranks.h"

namespace hybrid_trainer {

namespace {

namespace fs = std::filesystem;

struct FineTuning : TrainingOptions {
  std::string objective{}, task{}, label_smoothing{};
  std::optional<double> beta{}, epochs{};
};

// Without --epochs, a run has one epoch if this gives at least kEnoughSteps steps. Otherwise it has
// at most kMaxEpochs epochs, or more if they give fewer than kMinSteps steps.
constexpr std::int64_t kEnoughSteps = 60, kMinSteps = 30, kMaxEpochs = 5;

/// Learning rates for preference pairs; the rates of plain fine-tuning are too high.
constexpr double kPreferenceRate = 1e-6, kPreferenceRateOfAdapters = 2e-5;

/// Size of the examples: rows, which are packed into `sequences`. A step takes `batch` sequences.
struct EpochLength {
  std::int64_t rows = 0, sequences = 0, batch = 1;
  std::int64_t steps(double epochs) const {
    const double steps = epochs * static_cast<double>(sequences) / static_cast<double>(batch);
    return std::max<std::int64_t>(1, std::llround(std::ceil(steps)));
  }
  std::int64_t epochs() const {
    const auto epochs_of = [once = steps(1)](std::int64_t count) {
      return (count + once - 1) / once;
    };
    return std::max(epochs_of(kMinSteps), std::min(epochs_of(kEnoughSteps), kMaxEpochs));
  }
};

/// Reduces the batch to the number of sequences, because a step with duplicates computes them
/// twice. Each of `ranks` ranks gets the same number of sequences. Returns a note if the batch
/// changes, otherwise "".
std::string fit_batch(HybridTrainerConfig& config, std::int64_t sequences, int ranks) {
  const std::int64_t of_rank = (sequences + ranks - 1) / ranks;
  if (config.effective_batch() <= of_rank * ranks) return "";
  const std::int64_t before = config.effective_batch();
  std::int64_t& batch = config.data.batch_size;
  batch = std::min(batch, of_rank);
  while (of_rank % batch != 0) --batch;
  config.gradient_accumulation.micro_batches = of_rank / batch * ranks;
  return concat("reduced the batch to ", config.effective_batch(), " from ", before,
                " sequences: the rows fill only ", sequences,
                sequences == 1 ? " sequence" : " sequences");
}

bool resumes_a_run(const FineTuning& requested) {
  return requested.resume && RunPaths{requested.run}.contains_run();
}

/// Reduces the batch size for a small file, so that the epochs have at least kMinSteps steps,
/// unless batch size or steps are set. Then fits the batch.
EpochLength fitted_length(const FineTuning& requested, std::int64_t rows, std::int64_t sequences,
                          TrainingRunSettings& settings) {
  HybridTrainerConfig& config = settings.config;
  if (!requested.source.sets("data.batch_size") && !requested.source.sets("training.steps")) {
    const auto most = static_cast<std::int64_t>(
        requested.epochs.value_or(kMaxEpochs) * static_cast<double>(sequences) /
        static_cast<double>(kMinSteps * config.gradient_accumulation.micro_batches));
    config.data.batch_size = std::clamp<std::int64_t>(most, 1, config.data.batch_size);
  }
  const std::string note =
      fit_batch(config, sequences, settings.ranks == nullptr ? 1 : settings.ranks->size());
  if (!note.empty()) settings.notes.push_back(note);
  return {rows, sequences, config.effective_batch()};
}

/// Sets a new run's number of steps. Adds a note if it chose the epochs for a small file.
void set_steps(const FineTuning& requested, const EpochLength& length,
               TrainingRunSettings& settings) {
  const std::int64_t epochs = length.epochs();
  HybridTrainerConfig& config = settings.config;
  config.training.steps = length.steps(requested.epochs.value_or(static_cast<double>(epochs)));
  if (requested.epochs || epochs == 1) return;
  const auto count = [](std::int64_t n, const char* one, const char* more) {
    return concat(n, " ", n == 1 ? one : more);
  };
  std::string note = concat("small file: ", count(length.rows, "row", "rows"));
  if (config.data.is_rows())
    note += concat(" in ", count(length.sequences, "sequence", "sequences"), " of up to ",
                   config.data.sequence_length, " tokens");
  settings.notes.push_back(concat(note, "; training ", epochs, " epochs, ", config.training.steps,
                                  " steps of ", length.batch,
                                  "; --epochs, --batch-size and data.sequence_length change that"));
}

void check(const FineTuning& requested) {
  if (!requested.epochs) return;
  if (!(*requested.epochs > 0 && *requested.epochs <= 1e6))
    throw UsageError(concat("hybrid finetune: --epochs: got ", *requested.epochs,
                            ", want more than 0, at most 1000000"));
  if (requested.source.sets("training.steps"))
    throw UsageError("hybrid finetune: --epochs and --set training.steps are both given; give one");
}

std::string objective_of(const FineTuning& requested) {
  if (requested.task.empty()) return requested.objective;
  if (!requested.objective.empty())
    throw UsageError("hybrid finetune: --task and --objective are both given; give one");
  if (text_task_of(requested.task)) return requested.task;
  throw UsageError(choice_problem("hybrid finetune: --task", requested.task,
                                  {"classify", "embed", "rank", "reward"}));
}

void check_objective_of_run(const FineTuning& requested, const HybridTrainerConfig& begun) {
  const std::string objective = objective_of(requested);
  const char* const option = requested.task.empty() ? "--objective" : "--task";
  if (!objective.empty() && objective != begun.objective)
    throw UsageError(concat("hybrid finetune: ", option, ": got ", objective,
                            ", but the run trains ", begun.objective, "; leave ", option,
                            " out to continue the run"));
  if (requested.beta && *requested.beta != begun.preference_beta)
    throw UsageError(concat("hybrid finetune: --beta: got ", *requested.beta,
                            ", but the run trains with ", begun.preference_beta,
                            "; leave --beta out to continue the run"));
}

/// Sets the objective of --task, by default the folder's own task. Also sets the pooling of a model
/// with text-level tasks to the pooling of its folder or, if the folder has none, to the default of its
/// family.
void set_task(const FineTuning& requested, const ModelFolder& model, HybridTrainerConfig& config) {
  if (!requested.task.empty()) config.objective = objective_of(requested);
  const ModelFolder sentence_folder = sentence_folder_of(requested.adapter, model);
  if (requested.task.empty() && requested.objective.empty())
    config.objective = objective_of_folder(sentence_folder, config.model);
  if (!text_task_of(config.objective)) {
    if (config.model.language_head) return;
    throw UsageError(concat("hybrid finetune: --model ", model.string(),
                            " has no head that predicts tokens; want --task ",
                            config.model.labels.empty() ? "embed, classify, rank or reward"
                                                        : "classify, embed, rank or reward"));
  }
  config.model.language_head = false;
  if (config.objective == "embed") {
    config.model.labels.clear();
    config.model.pooling.clear();
    config.model.dense.clear();
    take_pipeline(sentence_folder, config);
  }
  if (!config.model.pooling.empty()) return;
  const bool takes_mean = config.objective == "embed" && config.model.bidirectional;
  config.model.pooling = takes_mean ? "mean" : class_pooling(model.files(), config.model);
}

/// Throws ConfigError if exported folders cannot store the pooling of the run's class head.
void check_pooling(const HybridTrainerConfig& config) {
  if (!config.pools() || config.objective == "embed") return;
  const std::string stored = exported_class_pooling(config.model, model_families());
  if (config.model.pooling == stored) return;
  throw ConfigError(
      {concat("model.pooling: got ", config.model.pooling, ", but in transformers the ",
              "class head of a ", find_family(config.model.family).title, " model reads the ",
              stored == "last" ? "last" : "first", " token; want ", stored)});
}

void set_objective(const FineTuning& requested, HybridTrainerConfig& config) {
  const std::string objective = objective_of(requested);
  if (!objective.empty()) config.objective = objective;
  if (requested.beta) config.preference_beta = *requested.beta;
  if (text_task_of(requested.objective))
    throw UsageError(concat("hybrid finetune: --objective: got ", requested.objective,
                            ", which is a text-level task; want --task ", requested.objective));
  const std::vector<std::string> objectives{"next_token", "dpo", "orpo"};
  if (requested.task.empty() && !objective.empty() &&
      std::ranges::count(objectives, requested.objective) == 0)
    throw UsageError(
        choice_problem("hybrid finetune: --objective", requested.objective, objectives));
  if (requested.beta && !config.prefers())
    throw UsageError("hybrid finetune: --beta requires --objective dpo or orpo");
  if (config.prefers() && !requested.source.sets("optimizer.learning_rate"))
    config.optimizer.learning_rate =
        config.has_adapters() ? kPreferenceRateOfAdapters : kPreferenceRate;
}

/// Returns the configuration of a resumed run, which keeps its method. For options that are not
/// given, uses the configuration, data and model of the run.
HybridTrainerConfig config_of_resumed(FineTuning& requested, const RunPaths& paths) {
  const HybridTrainerConfig begun = config_of_run(paths);
  check_resumed_options(requested, begun);
  check_method_of_run(requested.method, begun, requested.source.sets("lora.base"));
  check_objective_of_run(requested, begun);
  const RunData data = data_of_run(paths);
  requested.source.file = paths.config();
  const bool is_present =
      fs::weakly_canonical(requested.model) == fs::weakly_canonical(data.base.path());
  if (requested.model.empty() || is_present) {  // else the new location of the adapters' base
    requested.model = data.base.string();
    if (find_newest_checkpoint(paths.checkpoints()).checkpoint) requested.model.clear();
  }
  if (requested.data.empty()) requested.data = data.folder.string();
  return build_config(requested.source);
}

std::string method_of(const FineTuning& requested) {
  if (requested.adapter.empty()) return requested.method.empty() ? "full" : requested.method;
  if (requested.method == "full")
    throw UsageError(concat("hybrid finetune: --method full and --adapter ", requested.adapter,
                            ", but --method full does not train adapters; want --method lora or "
                            "qlora, or merge the adapter first: hybrid export ",
                            shell_path(requested.adapter), " --merge --output MERGED"));
  return requested.method.empty() ? "lora" : requested.method;
}

void refuse_run(const std::string& model) {
  const RunPaths run{model};
  if (!run.contains_run()) return;
  throw UsageError(
      concat("hybrid finetune: --model ", model,
             config_of_run(run).masks()
                 ? ": its model predicts masked tokens (objective masked), but fine-tuning needs a "
                   "model that predicts the next token; give a Hugging Face folder"
                 : concat(" is a run; export its model first: hybrid export ", shell_path(model),
                          " --output FOLDER")));
}

/// Returns the configuration without the number of steps. Opens `model` for a new run.
HybridTrainerConfig config_of(FineTuning& requested, ModelFolder& model) {
  if (resumes_a_run(requested)) return config_of_resumed(requested, RunPaths{requested.run});
  if (requested.resume && requested.model.empty() && requested.data.empty())
    existing_run(requested.run);
  if (requested.model.empty() || requested.data.empty())
    throw UsageError(concat("hybrid finetune: --", requested.model.empty() ? "model" : "data",
                            " is missing; want --model HF_DIR --data FILE --run RUN"));
  if (!may_be_examples(requested.data) && !is_folder_of_classes(requested.data))
    throw MissingInput(
        concat(requested.data,
               !fs::exists(requested.data)        ? ": does not exist"
               : fs::is_directory(requested.data) ? ": is a folder without files of examples"
                                                  : ": is not a file",
               "; want examples: a JSON, CSV or parquet file, a folder of such files, - for "
               "standard input, or for images a folder with one subfolder per class"));
  refuse_run(requested.model);
  const std::string method = method_of(requested);
  model = requested.model;
  HybridTrainerConfig config = fine_tuning_config(model, method);
  set_task(requested, model, config);
  config = build_config(requested.source, config);
  if (requested.source.sets("model.context") && !requested.source.sets("data.sequence_length"))
    config.data.sequence_length = usual_row_length(config.model);
  check_pooling(config);
  check_method(method, config, model);
  set_objective(requested, config);
  return config;
}

struct LongestRow {
  std::int64_t places = 1, source = 1;
  explicit LongestRow(const ExampleData& data) {
    for (const auto* rows : {&data.train, &data.validation})
      for (const ExampleRow& row : *rows) {
        places = std::max(places, row.places());
        source = std::max(source, std::ssize(row.source));
      }
  }
  static std::int64_t fitted(std::int64_t length, std::int64_t most) {
    return std::min((length + 7) / 8 * 8, most);
  }
};

/// Pads each target to the longest row, and each source to the longest source.
void fit_to_sources(const FineTuning& requested, const ExampleData& data, ExampleFiles& files,
                    HybridTrainerConfig& config) {
  const LongestRow longest(data);
  if (!requested.source.sets("data.sequence_length"))
    config.data.sequence_length = LongestRow::fitted(longest.places, config.model.context);
  if (!files.source || requested.source.sets("model.encoder.source_length")) return;
  config.model.encoder.source_length =
      LongestRow::fitted(longest.source, config.model.encoder.context);
  files.source->longest = config.model.encoder.source_length;
}

std::int64_t packed_sequences(const ExampleData& data, const ExampleFiles& files,
                              const HybridTrainerConfig& config) {
  const std::int64_t source = files.source ? config.model.encoder.source_places() : 0;
  return PackedRows(data.train, packing_of(config.data, *files.tokenizer.tokenizer(), source))
      .size();
}

/// Packs a small file into sequences as long as its longest row, unless the length is set.
void fit_to_small_file(const FineTuning& requested, const ExampleData& data,
                       const ExampleFiles& files, HybridTrainerConfig& config) {
  if (requested.source.sets("data.sequence_length")) return;
  const std::int64_t sequences = packed_sequences(data, files, config);
  if (sequences * kMaxEpochs >= kMinSteps * config.effective_batch()) return;
  config.data.sequence_length =
      LongestRow::fitted(LongestRow(data).places, config.data.sequence_length);
}

void set_phases(const FineTuning& requested, HybridTrainerConfig& config) {
  scale_phases(config, requested.source);
  if (!requested.source.sets("schedule.warmup_steps"))
    config.schedule.warmup_steps = std::llround(0.03 * static_cast<double>(config.training.steps));
}

/// Reads the rows of a run into `read`. For a new run, fits the sequence lengths to them.
EpochLength rows_of_epoch(const FineTuning& requested, TrainingRunSettings& settings,
                          ReadInputs& read) {
  HybridTrainerConfig& config = settings.config;
  const auto examples =
      std::make_shared<ReadExamples>(read_examples(settings, opened_model(settings, read.model)));
  const ExampleData& data = examples->data;
  ExampleFiles& files = examples->files;
  const std::int64_t longest = config.data.sequence_length,
                     longest_source = files.source ? files.source->longest : 0;
  if (!resumes_a_run(requested)) {
    if (files.max_clip_seconds > 0 || files.source)
      fit_to_sources(requested, data, files, config);
    else
      fit_to_small_file(requested, data, files, config);
  }
  const bool may_grow = config.data.sequence_length > longest ||
                        (files.source && files.source->longest > longest_source);
  if (!may_grow) read.examples = examples;  // else truncated rows must be read again
  return {std::ssize(data.train), packed_sequences(data, files, config)};
}

/// Sets a higher learning rate for the last layer of a class head that starts at zero, unless groups
/// are set. Adam's first step then changes an output by at most about kLogitStep, at any width.
void set_rate_of_new_head(const FineTuning& requested, const TextData& data,
                          TrainingRunSettings& settings) {
  constexpr double kLogitStep = 4;
  HybridTrainerConfig& config = settings.config;
  HybridTrainerConfig labeled = config;
  set_text_labels(labeled, data);
  const bool is_new = labeled.model.labels.size() != config.model.labels.size();
  if (!is_new || requested.source.sets("optimizer.groups")) return;
  const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
  const auto model = make_network(labeled.model, 0, nowhere);
  const std::string head = model->text_head()->parts().back();
  const double rate = std::max(config.optimizer.learning_rate,
                               kLogitStep / static_cast<double>(config.model.width));
  config.optimizer.groups.push_back({.match = head + ".*", .learning_rate = rate});
  settings.notes.push_back(concat("the new layer ", head, " has a learning rate of ", brief(rate),
                                  " (optimizer.groups)"));
}

/// Length of a small file's sequences as a multiple of its longest row. A batch should contain
/// dozens of texts.
constexpr std::int64_t kRowsOfSequence = 8;

/// Reads the examples of a text-level run into `read`. For a new run, packs few texts into short sequences.
EpochLength texts_of_epoch(const FineTuning& requested, TrainingRunSettings& settings,
                           ReadInputs& read) {
  HybridTrainerConfig& config = settings.config;
  const auto data = std::make_shared<TextData>(
      read_text_data(example_files(settings, opened_model(settings, read.model)), config));
  read.texts = data;
  if (!resumes_a_run(requested)) set_rate_of_new_head(requested, *data, settings);
  const auto sequences = [&] {
    return PackedTexts(data->train, text_packing(config, *data->files.tokenizer.tokenizer()))
        .size();
  };
  std::int64_t count = sequences();
  const bool is_small = count * kMaxEpochs < kMinSteps * config.effective_batch();
  if (is_small && !resumes_a_run(requested) && !requested.source.sets("data.sequence_length")) {
    const std::int64_t longest = std::max(longest_row(data->train), longest_row(data->validation));
    config.data.sequence_length =
        LongestRow::fitted(kRowsOfSequence * longest, config.data.sequence_length);
    count = sequences();
  }
  return {std::ssize(data->train), count};
}

/// Chooses lengths, batch and steps from the examples unless they are set, and stores the examples
/// in `read`.
void choose_sizes(const FineTuning& requested, TrainingRunSettings& settings, ReadInputs& read) {
  HybridTrainerConfig& config = settings.config;
  const bool resumes = resumes_a_run(requested),
             reads_rows = !find_family(config.model.family).fine_tuning.layout.empty();
  if (resumes && !requested.epochs) return;
  EpochLength length;
  if (config.pools()) {
    length = texts_of_epoch(requested, settings, read);
  } else if (reads_rows) {
    length = rows_of_epoch(requested, settings, read);
  } else {
    read.network = network_data(settings);
    length.rows = length.sequences = read.network->examples();
  }
  if (length.rows == 0 && requested.epochs)
    throw UsageError(
        concat("hybrid finetune: --epochs counts passes over examples, and a ", config.model.family,
               " generates its own examples without limit; give --set training.steps=N"));
  if (length.rows == 0) return;
  if (resumes) {
    length.batch = config.effective_batch();
    config.training.steps = length.steps(*requested.epochs);
    return;
  }
  length = fitted_length(requested, length.rows, length.sequences, settings);
  const bool sets_steps = requested.source.sets("training.steps");
  if (!sets_steps) set_steps(requested, length, settings);
  if (!sets_steps || reads_rows) set_phases(requested, config);
}

CommandSyntax finetune_syntax(FineTuning& requested) {
  CommandSyntax syntax{
      .name = "finetune",
      .usage =
          "--model HF_DIR --data EXAMPLES --run RUN [options]\n"
          "       hybrid finetune --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Fine-tunes a Hugging Face model on examples in JSON, CSV or parquet: text, prompt\n"
          "and completion, messages, alpaca or sharegpt, texts with classes or scores, pairs of\n"
          "texts, audio clips with transcripts, or images with labels. RUN gets the same files\n"
          "as in `hybrid train`; `hybrid export` writes the result as a model folder."};
  auto add = syntax.options.add_options();
  add("model", model_value(requested.model),
      "Model with tokenizer and chat template: a Hugging Face folder, a GGUF file, or ollama:NAME "
      "for a model downloaded by Ollama.");
  add("data", po::value(&requested.data)->value_name("EXAMPLES"),
      "File of examples (.jsonl, .json, .csv, .parquet), folder of such files, or - for standard "
      "input, which is stored in RUN.");
  add("validation", po::value(&requested.validation)->value_name("EXAMPLES"),
      "Validation examples. Default: data.validation_fraction of the rows is held back.");
  add_columns_option(syntax.options, requested.columns);
  add("method", po::value(&requested.method)->value_name("full|lora|dora|qlora"),
      "full (default): train all weights, learning rate 2e-5. lora: adapters of rank 16 and alpha "
      "32 on all linear layers of a frozen base in bf16, learning rate 2e-4. dora: lora with a "
      "trained magnitude per row. qlora: lora on a quantized base: the blocks of a GGUF file, else "
      "4 bits (nf4). Change these settings with --set lora.rank=…, lora.alpha, lora.targets, "
      "lora.base.");
  add("task", po::value(&requested.task)->value_name("TASK"),
      "Text-level task, in place of writing text: classify ({\"text\", \"label\"}), embed "
      "({\"anchor\", \"positive\"}), rank ({\"query\", \"passage\", \"label\"}) or reward "
      "({\"prompt\", \"chosen\", \"rejected\"}). Default: the task of the model's folder.");
  add("objective", po::value(&requested.objective)->value_name("OBJECTIVE"),
      "next_token (default); or, for pairs of a better and a worse answer ({\"prompt\", "
      "\"chosen\", \"rejected\"}), dpo, which compares with the initial model, or orpo, which "
      "needs no reference. dpo and orpo use a learning rate of 1e-6, with adapters 2e-5.");
  add("beta", optional_value(requested.beta, "B"),
      "Strength of the preference term in dpo and orpo (default: 0.1).");
  add("label-smoothing", po::value(&requested.label_smoothing)->value_name("E"),
      "Share of each target's weight that is spread evenly over all tokens or classes (default: "
      "0), as in PyTorch's label_smoothing; same as training.label_smoothing.");
  add("adapter", po::value(&requested.adapter)->value_name("PEFT_DIR"),
      "Continue training the adapters of a PEFT folder on top of --model.");
  add("epochs", optional_value(requested.epochs, "N"),
      "Number of passes over the rows, in place of training.steps. Default: 1; for small files 2 "
      "to 5, or enough for 30 steps.");
  const auto sets = [&](const char* key) {
    return po::value<std::string>()->notifier([&requested, key](const std::string& value) {
      requested.source.settings.push_back(concat(key, "=", value));
    });
  };
  add("lr", sets("optimizer.learning_rate")->value_name("RATE"),
      "Highest learning rate; same as optimizer.learning_rate.");
  add("batch-size", sets("data.batch_size")->value_name("B"),
      "Sequences per micro-batch, and per step unless gradient_accumulation.micro_batches is set; "
      "same as data.batch_size.");
  add_setting_options(syntax.options, requested.source);
  add_training_options(syntax.options, requested);
  return syntax;
}

}  // namespace

static int fine_tune(const std::vector<std::string>& arguments) {
  FineTuning requested{{.command = "finetune", .model_option = "--model"}};
  if (!parse_command_line(finetune_syntax(requested), arguments)) return 0;
  requested.resume = resumes(requested.resume);
  check(requested);
  if (!requested.columns.empty())
    requested.source.settings.push_back("data.columns=" + requested.columns);
  StoredExamples examples(requested.run, requested.data, requested.resume);
  requested.data = examples.data();
  if (!requested.label_smoothing.empty())
    requested.source.settings.push_back("training.label_smoothing=" + requested.label_smoothing);
  check_model_is_not_set("finetune", requested.source.settings);
  const std::vector<std::string> set_keys = explicit_keys(requested.source);
  const auto read = std::make_shared<ReadInputs>();
  const HybridTrainerConfig config = config_of(requested, read->model);
  TrainingRunSettings settings = settings_of(requested, arguments, config, set_keys, read);
  if (!requested.adapter.empty() && requested.method == "dora" &&
      !settings.config.lora.variant.ends_with("dora"))
    throw UsageError(concat("hybrid finetune: --method dora: the adapter ", requested.adapter,
                            " has the variant ", settings.config.lora.variant,
                            ", which cannot be changed; leave --method out"));
  if (!requested.validation.empty() && requested.source.sets("data.validation_fraction"))
    settings.notes.emplace_back(
        "data.validation_fraction has no effect: validation uses the rows of --validation");
  const auto divide = [&](int ranks, HybridTrainerConfig& config) {
    if (!resumes_a_run(requested)) divide_batch(requested.source, ranks, config);
  };
  divide(requested.ranks.value_or(1), settings.config);
  const TrainingRanks ranks("finetune", examples.in_place_of_input(arguments), requested.ranks,
                            settings.config);
  const auto report = [&](const TrainingRunResult& result) {
    return report_training(result, requested.run, requested.json);
  };
  return ranks.run(settings, report, [&](TrainingRunSettings& of_run) {
    if (Communicator* const all = of_run.ranks) {
      divide(all->size(), of_run.config);
      check_ranks(of_run.config, all->size());
    }
    choose_sizes(requested, of_run, *read);
  });
}

int finetune_command(const std::vector<std::string>& arguments) {
  return report_errors_once([&] { return fine_tune(arguments); });
}

}  // namespace hybrid_trainer
