#include "src/tools/commands.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

constexpr Command kCommands[] = {
    {"plan", plan_command, "compute the memory of a run and find settings that fit"},
    {"prepare", prepare_command, "convert text files and folders to tokens, and train a tokenizer"},
    {"finetune", finetune_command, "fine-tune a Hugging Face model on examples"},
    {"rows", rows_command, "preview the training rows of a file of examples"},
    {"train", train_command, "train a model, or resume a run"},
    {"watch", watch_command, "monitor a run in the terminal or on a live web page"},
    {"compare", compare_command, "compare training methods over several seeds"},
    {"eval", eval_command,
     "measure loss, and perplexity or accuracy, on the whole validation split"},
    {"predict", predict_command, "write classes, scores or embeddings of rows to a file"},
    {"sample", sample_command, "generate text, or chat"},
    {"chat", chat_command, "chat with a model; same as sample --chat"},
    {"transcribe", transcribe_command, "transcribe a WAV file with a Whisper model"},
    {"inspect", inspect_command,
     "show the contents of a run, checkpoint, model folder or data file"},
    {"export", export_command,
     "export a model or adapter for transformers, PEFT, llama.cpp or Ollama"},
    {"upcycle", upcycle_command, "convert a dense Hugging Face model to a mixture of experts"},
    {"config", config_command,
     "print the configuration, its essential keys, schema or documentation"},
    {"completion", completion_command, "print a completion script for bash, zsh or fish"},
    {"man", man_command, "print a command's manual page"},
    {"bench", bench_command, "measure training steps on this machine"},
    {"doctor", doctor_command, "show this machine's CPU, speeds, libraries, memory and GPUs"},
};

}  // namespace

std::span<const Command> command_table() { return kCommands; }

CommandDescription describe(const Command& command) {
  try {
    command.run({"--describe"});
  } catch (DescriptionRequested& requested) {
    return std::move(requested.description);
  }
  throw Error(ExitCode::kInternal, concat(command.name, " does not describe its arguments"));
}

std::string description_of_all() {
  boost::json::array all;
  for (const Command& command : kCommands) {
    boost::json::object one = json_of(describe(command));
    one["summary"] = command.summary;
    all.push_back(std::move(one));
  }
  return boost::json::serialize(
      boost::json::object{{"version", project_version()}, {"commands", std::move(all)}});
}

}  // namespace hybrid_trainer
