#include "src/tools/commands.h"

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/run/run_files.h"

namespace hybrid_trainer {

namespace {

constexpr Command kCommands[] = {
    {"plan", plan_command, "compute the memory of a run, and find settings that fit"},
    {"prepare", prepare_command, "turn text files and folders into tokens and a tokenizer"},
    {"finetune", finetune_command, "train a Hugging Face folder's model on examples"},
    {"rows", rows_command, "show what a model would learn from a file of examples"},
    {"train", train_command, "train a model; resume a run"},
    {"watch", watch_command, "show a run while it trains: in the terminal, or as a live page"},
    {"compare", compare_command, "measure whether one way to train beats another"},
    {"eval", eval_command, "measure loss and perplexity over the whole validation split"},
    {"sample", sample_command, "continue a text, or hold a conversation"},
    {"chat", chat_command, "hold a conversation: sample --chat"},
    {"transcribe", transcribe_command, "write what a Whisper model hears in a WAV file"},
    {"inspect", inspect_command, "show what a run, checkpoint, model folder or data file holds"},
    {"export", export_command,
     "write a model or adapter for transformers, PEFT, llama.cpp or Ollama"},
    {"upcycle", upcycle_command, "make a mixture of experts of a dense Hugging Face folder"},
    {"config", config_command,
     "print the configuration, its essential keys, schema or documentation"},
    {"completion", completion_command, "print what completes commands in bash, zsh or fish"},
    {"man", man_command, "print a command's manual page"},
    {"bench", bench_command, "measure real training steps on this machine"},
    {"doctor", doctor_command, "show this machine: processor, speeds, libraries, memory, GPU"},
};

}  // namespace

std::span<const Command> command_table() { return kCommands; }

CommandDescription describe(const Command& command) {
  try {
    command.run({"--describe"});
  } catch (DescriptionAsked& asked) {
    return std::move(asked.description);
  }
  throw Error(ExitCode::kInternal, concat(command.name, " does not say what it takes"));
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
