#include <algorithm>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/fields.h"
#include "hybrid_trainer/run/training_run.h"
#include "src/config/config_checks.h"
#include "src/core/messages.h"
#include "src/files/checkpoint.h"
#include "src/run/fine_tuning_method.h"
#include "src/run/run_files.h"
#include "src/run/run_settings.h"
#include "src/run/speech/clips.h"
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
  std::string objective{}, label_smoothing{};
  std::optional<double> beta{}, epochs{};
};

// Without --epochs, a run has one epoch if that makes kEnoughSteps; else at most kMostEpochs, or
// more if these make fewer than kLeastSteps.
constexpr std::int64_t kEnoughSteps = 60, kLeastSteps = 30, kMostEpochs = 5;

/// Learning rates for preference pairs; the rates of plain fine-tuning are too high.
constexpr double kPreferenceRate = 1e-6, kPreferenceRateOfAdapters = 2e-5;

/// Size of the examples: rows, packed into `sequences`, of which a step takes `batch`.
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
    return std::max(epochs_of(kLeastSteps), std::min(epochs_of(kEnoughSteps), kMostEpochs));
  }
};

/// Reduces the batch to the number of sequences, because a step with duplicates computes them
/// twice; each of `ranks` gets the same number. Returns a note if the batch changes.
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

bool resumes_a_run(const FineTuning& asked) {
  return asked.resume && RunPaths{asked.run}.hold_a_run();
}

/// Reduces the batch size for a small file, if neither batch size nor steps are set, so that
/// `epochs` make kLeastSteps. Then fits the batch.
EpochLength fitted_length(const FineTuning& asked, std::int64_t rows, std::int64_t sequences,
                          TrainingRunSettings& settings) {
  HybridTrainerConfig& config = settings.config;
  if (!asked.source.sets("data.batch_size") && !asked.source.sets("training.steps")) {
    const auto most = static_cast<std::int64_t>(
        asked.epochs.value_or(kMostEpochs) * static_cast<double>(sequences) /
        static_cast<double>(kLeastSteps * config.gradient_accumulation.micro_batches));
    config.data.batch_size = std::clamp<std::int64_t>(most, 1, config.data.batch_size);
  }
  const std::string note =
      fit_batch(config, sequences, settings.ranks == nullptr ? 1 : settings.ranks->size());
  if (!note.empty()) settings.notes.push_back(note);
  return {rows, sequences, config.effective_batch()};
}

/// Sets the steps of a new run, and adds a note on the choices for a small file.
void set_steps(const FineTuning& asked, const EpochLength& length, TrainingRunSettings& settings) {
  const std::int64_t epochs = length.epochs();
  HybridTrainerConfig& config = settings.config;
  config.training.steps = length.steps(asked.epochs.value_or(static_cast<double>(epochs)));
  if (asked.epochs || epochs == 1) return;
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

void check(const FineTuning& asked) {
  if (!asked.epochs) return;
  if (!(*asked.epochs > 0 && *asked.epochs <= 1e6))
    throw UsageError(concat("hybrid finetune: --epochs: got ", *asked.epochs,
                            ", want more than 0, at most 1000000"));
  if (asked.source.sets("training.steps"))
    throw UsageError("hybrid finetune: --epochs and --set training.steps are both given; give one");
}

void check_objective_of_run(const FineTuning& asked, const HybridTrainerConfig& begun) {
  if (!asked.objective.empty() && asked.objective != begun.objective)
    throw UsageError(concat("hybrid finetune: --objective: got ", asked.objective,
                            ", but the run trains ", begun.objective,
                            "; leave --objective out to continue the run"));
  if (asked.beta && *asked.beta != begun.preference_beta)
    throw UsageError(concat("hybrid finetune: --beta: got ", *asked.beta,
                            ", but the run trains with ", begun.preference_beta,
                            "; leave --beta out to continue the run"));
}

/// Applies --objective and --beta to the configuration of a new run.
void set_objective(const FineTuning& asked, HybridTrainerConfig& config) {
  if (!asked.objective.empty()) config.objective = asked.objective;
  if (asked.beta) config.preference_beta = *asked.beta;
  const std::vector<std::string> objectives{"next_token", "dpo", "orpo"};
  if (!asked.objective.empty() && std::ranges::count(objectives, asked.objective) == 0)
    throw UsageError(choice_problem("hybrid finetune: --objective", asked.objective, objectives));
  if (asked.beta && !config.prefers())
    throw UsageError("hybrid finetune: --beta requires --objective dpo or orpo");
  if (config.prefers() && !asked.source.sets("optimizer.learning_rate"))
    config.optimizer.learning_rate =
        config.has_adapters() ? kPreferenceRateOfAdapters : kPreferenceRate;
}

/// Returns the configuration of a resumed run, which keeps its method. Its own configuration, data
/// and model replace missing options.
HybridTrainerConfig config_of_resumed(FineTuning& asked, const RunPaths& paths) {
  const HybridTrainerConfig begun = config_of_run(paths);
  check_resumed_options(asked, begun);
  check_method_of_run(asked.method, begun, asked.source.sets("lora.base"));
  check_objective_of_run(asked, begun);
  const RunData data = data_of_run(paths);
  asked.source.file = paths.config();
  const bool is_there = fs::weakly_canonical(asked.model) == fs::weakly_canonical(data.base.path());
  if (asked.model.empty() || is_there) {  // else the new location of the adapters' base
    asked.model = data.base.string();
    if (find_newest_checkpoint(paths.checkpoints()).checkpoint) asked.model.clear();
  }
  if (asked.data.empty()) asked.data = data.folder.string();
  return build_config(asked.source);
}

/// Returns --method or the default.
std::string method_of(const FineTuning& asked) {
  if (asked.adapter.empty()) return asked.method.empty() ? "full" : asked.method;
  if (asked.method == "full")
    throw UsageError(concat("hybrid finetune: --method full and --adapter ", asked.adapter,
                            ", but --method full does not train adapters; want --method lora or "
                            "qlora, or merge the adapter first: hybrid export ",
                            shell_path(asked.adapter), " --merge --output MERGED"));
  return asked.method.empty() ? "lora" : asked.method;
}

/// Throws UsageError if the model is a run, not a Hugging Face folder.
void refuse_run(const std::string& model) {
  const RunPaths run{model};
  if (!run.hold_a_run()) return;
  throw UsageError(
      concat("hybrid finetune: --model ", model,
             config_of_run(run).masks()
                 ? ": its model predicts masked tokens (objective masked), but fine-tuning needs a "
                   "model that predicts the next token; give a Hugging Face folder"
                 : concat(" is a run; export its model first: hybrid export ", shell_path(model),
                          " --output FOLDER")));
}

/// Returns the configuration without the number of steps. Opens `model` for a new run.
HybridTrainerConfig config_of(FineTuning& asked, ModelFolder& model) {
  if (resumes_a_run(asked)) return config_of_resumed(asked, RunPaths{asked.run});
  if (asked.resume && asked.model.empty() && asked.data.empty()) existing_run(asked.run);
  if (asked.model.empty() || asked.data.empty())
    throw UsageError(concat("hybrid finetune: --", asked.model.empty() ? "model" : "data",
                            " is missing; want --model HF_DIR --data FILE --run RUN"));
  if (!may_be_examples(asked.data) && !is_folder_of_classes(asked.data))
    throw MissingInput(
        concat(asked.data,
               !fs::exists(asked.data)        ? ": does not exist"
               : fs::is_directory(asked.data) ? ": is a folder without files of examples"
                                              : ": is not a file",
               "; want examples: a JSON, CSV or parquet file, a folder of such files, - for "
               "standard input, or for images a folder with one subfolder per class"));
  refuse_run(asked.model);
  const std::string method = method_of(asked);
  model = asked.model;
  HybridTrainerConfig config = build_config(asked.source, fine_tuning_config(model, method));
  if (asked.source.sets("model.context") && !asked.source.sets("data.sequence_length"))
    config.data.sequence_length = usual_row_length(config.model);
  check_method(method, config, model);
  set_objective(asked, config);
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
void fit_to_sources(const FineTuning& asked, const ExampleData& data, ExampleFiles& files,
                    HybridTrainerConfig& config) {
  const LongestRow longest(data);
  if (!asked.source.sets("data.sequence_length"))
    config.data.sequence_length = LongestRow::fitted(longest.places, config.model.context);
  if (!files.source || asked.source.sets("model.encoder.source_length")) return;
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

/// Packs a small file into sequences of its longest row, unless the length is set.
void fit_to_small_file(const FineTuning& asked, const ExampleData& data, const ExampleFiles& files,
                       HybridTrainerConfig& config) {
  if (asked.source.sets("data.sequence_length")) return;
  const std::int64_t sequences = packed_sequences(data, files, config);
  if (sequences * kMostEpochs >= kLeastSteps * config.effective_batch()) return;
  config.data.sequence_length =
      LongestRow::fitted(LongestRow(data).places, config.data.sequence_length);
}

/// Sets the phases of a new run, or of one with a new number of steps.
void set_phases(const FineTuning& asked, HybridTrainerConfig& config) {
  scale_phases(config, asked.source);
  if (!asked.source.sets("schedule.warmup_steps"))
    config.schedule.warmup_steps = std::llround(0.03 * static_cast<double>(config.training.steps));
}

/// Reads the rows of a run into `read`, and fits the lengths of a new run to them.
EpochLength rows_of_epoch(const FineTuning& asked, TrainingRunSettings& settings,
                          ReadInputs& read) {
  HybridTrainerConfig& config = settings.config;
  const auto examples =
      std::make_shared<ReadExamples>(read_examples(settings, opened_model(settings, read.model)));
  const ExampleData& data = examples->data;
  ExampleFiles& files = examples->files;
  const std::int64_t longest = config.data.sequence_length,
                     longest_source = files.source ? files.source->longest : 0;
  if (!resumes_a_run(asked)) {
    if (files.heard_seconds > 0 || files.source)
      fit_to_sources(asked, data, files, config);
    else
      fit_to_small_file(asked, data, files, config);
  }
  const bool may_grow = config.data.sequence_length > longest ||
                        (files.source && files.source->longest > longest_source);
  if (!may_grow) read.examples = examples;  // else truncated rows would be longer now
  return {std::ssize(data.train), packed_sequences(data, files, config)};
}

/// Chooses lengths, batch and steps from the examples, unless set. `read` receives them.
void choose_sizes(const FineTuning& asked, TrainingRunSettings& settings, ReadInputs& read) {
  HybridTrainerConfig& config = settings.config;
  const bool resumes = resumes_a_run(asked),
             reads_rows = !find_family(config.model.family).fine_tuning.layout.empty();
  if (resumes && !asked.epochs) return;
  EpochLength length;
  if (reads_rows) {
    length = rows_of_epoch(asked, settings, read);
  } else {
    read.network = network_data(settings);
    length.rows = length.sequences = read.network->examples();
  }
  if (length.rows == 0 && asked.epochs)
    throw UsageError(
        concat("hybrid finetune: --epochs counts passes over examples, and a ", config.model.family,
               " generates its own examples without limit; give --set training.steps=N"));
  if (length.rows == 0) return;
  if (resumes) {
    length.batch = config.effective_batch();
    config.training.steps = length.steps(*asked.epochs);
    return;
  }
  length = fitted_length(asked, length.rows, length.sequences, settings);
  const bool sets_steps = asked.source.sets("training.steps");
  if (!sets_steps) set_steps(asked, length, settings);
  if (!sets_steps || reads_rows) set_phases(asked, config);
}

CommandSyntax finetune_syntax(FineTuning& asked) {
  CommandSyntax syntax{
      .name = "finetune",
      .usage =
          "--model HF_DIR --data EXAMPLES --run RUN [options]\n"
          "       hybrid finetune --resume --run RUN [--set KEY=VALUE]",
      .description =
          "Fine-tunes a Hugging Face model on examples in JSON, CSV or parquet: text, prompt\n"
          "and completion, messages, alpaca or sharegpt, audio clips with transcripts, or\n"
          "images with labels. RUN gets the same files as in `hybrid train`; `hybrid export`\n"
          "writes the result as a model folder.",
      .operands = {}};
  auto add = syntax.options.add_options();
  add("model", model_value(asked.model),
      "Model with tokenizer and chat template: a Hugging Face folder, a GGUF file, or ollama:NAME "
      "for a model downloaded by Ollama.");
  add("data", po::value(&asked.data)->value_name("EXAMPLES"),
      "File of examples (.jsonl, .json, .csv, .parquet), folder of such files, or - for standard "
      "input, which is stored in RUN.");
  add("validation", po::value(&asked.validation)->value_name("EXAMPLES"),
      "Validation examples. Default: data.validation_fraction of the rows is held back.");
  add_columns_option(syntax.options, asked.columns);
  add("method", po::value(&asked.method)->value_name("full|lora|dora|qlora"),
      "full (default): train all weights, learning rate 2e-5. lora: adapters of rank 16 and alpha "
      "32 on all linear layers of a frozen base in bf16, learning rate 2e-4. dora: lora with a "
      "trained magnitude per row. qlora: lora on a quantized base: the blocks of a GGUF file, else "
      "4 bits (nf4). Change these settings with --set lora.rank=…, lora.alpha, lora.targets, "
      "lora.base.");
  add("objective", po::value(&asked.objective)->value_name("OBJECTIVE"),
      "next_token (default); or, for pairs of a better and a worse answer ({\"prompt\", "
      "\"chosen\", \"rejected\"}), dpo, which compares with the initial model, or orpo, which "
      "needs no reference. dpo and orpo use a learning rate of 1e-6, with adapters 2e-5.");
  add("beta", optional_value(asked.beta, "B"),
      "Strength of the preference term in dpo and orpo (default: 0.1).");
  add("label-smoothing", po::value(&asked.label_smoothing)->value_name("E"),
      "Share of each target's weight that is spread evenly over all tokens or classes (default: "
      "0), as in PyTorch's label_smoothing; same as training.label_smoothing.");
  add("adapter", po::value(&asked.adapter)->value_name("PEFT_DIR"),
      "Continue training the adapters of a PEFT folder on top of --model.");
  add("epochs", optional_value(asked.epochs, "N"),
      "Number of passes over the rows, in place of training.steps. Default: 1; for small files 2 "
      "to 5, or enough for 30 steps.");
  const auto sets = [&](const char* key) {
    return po::value<std::string>()->notifier([&asked, key](const std::string& value) {
      asked.source.settings.push_back(concat(key, "=", value));
    });
  };
  add("lr", sets("optimizer.learning_rate")->value_name("RATE"),
      "Highest learning rate; same as optimizer.learning_rate.");
  add("batch-size", sets("data.batch_size")->value_name("B"),
      "Sequences per micro-batch, and per step unless gradient_accumulation.micro_batches is set; "
      "same as data.batch_size.");
  add_setting_options(syntax.options, asked.source);
  add_training_options(syntax.options, asked);
  return syntax;
}

}  // namespace

static int fine_tune(const std::vector<std::string>& arguments) {
  FineTuning asked{{.command = "finetune", .model_option = "--model"}};
  if (!parse_command_line(finetune_syntax(asked), arguments)) return 0;
  asked.resume = resumes(asked.resume);
  check(asked);
  if (!asked.columns.empty()) asked.source.settings.push_back("data.columns=" + asked.columns);
  KeptExamples examples(asked.run, asked.data, asked.resume);
  asked.data = examples.data();
  if (!asked.label_smoothing.empty())
    asked.source.settings.push_back("training.label_smoothing=" + asked.label_smoothing);
  check_model_is_not_set("finetune", asked.source.settings);
  const std::vector<std::string> set_keys = explicit_keys(asked.source);
  const auto read = std::make_shared<ReadInputs>();
  const HybridTrainerConfig config = config_of(asked, read->model);
  TrainingRunSettings settings = settings_of(asked, arguments, config, set_keys, read);
  if (!asked.adapter.empty() && asked.method == "dora" &&
      !settings.config.lora.variant.ends_with("dora"))
    throw UsageError(concat("hybrid finetune: --method dora: the adapter ", asked.adapter,
                            " has the variant ", settings.config.lora.variant,
                            ", which cannot be changed; leave --method out"));
  if (!asked.validation.empty() && asked.source.sets("data.validation_fraction"))
    settings.notes.emplace_back(
        "data.validation_fraction is ignored: validation uses the rows of --validation");
  const auto divide = [&](int ranks, HybridTrainerConfig& config) {
    if (!resumes_a_run(asked)) divide_batch(asked.source, ranks, config);
  };
  divide(asked.ranks.value_or(1), settings.config);
  const TrainingRanks ranks("finetune", examples.in_place_of_input(arguments), asked.ranks,
                            settings.config);
  const auto report = [&](const TrainingRunResult& result) {
    return report_training(result, asked.run, asked.json);
  };
  return ranks.run(settings, report, [&](TrainingRunSettings& of_run) {
    if (Communicator* const all = of_run.ranks) {
      divide(all->size(), of_run.config);
      check_ranks(of_run.config, all->size());
    }
    choose_sizes(asked, of_run, *read);
  });
}

int finetune_command(const std::vector<std::string>& arguments) {
  return report_errors_once([&] { return fine_tune(arguments); });
}

}  // namespace hybrid_trainer
