#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/nearest_name.h"
#include "hybrid_trainer/files/terminal_text.h"
#include "hybrid_trainer/run/run_files.h"
#include "src/tools/commands.h"
#include "src/tools/waiting_threads.h"

namespace hybrid_trainer {
namespace {

struct Command {
  const char* name;
  int (*run)(const std::vector<std::string>&);
  const char* summary;
  bool computes = false;  // on several threads that wait for one another
};

constexpr Command kCommands[] = {
    {"plan", plan_command, "compute the memory of a run, and find settings that fit", true},
    {"prepare", prepare_command, "turn text files and folders into tokens and a tokenizer"},
    {"finetune", finetune_command, "train a Hugging Face folder's model on examples"},
    {"rows", rows_command, "show what a model would learn from a file of examples"},
    {"train", train_command, "train a model; resume a run", true},
    {"watch", watch_command, "show a run while it trains: in the terminal, or as a live page"},
    {"compare", compare_command, "measure whether one way to train beats another", true},
    {"eval", eval_command, "measure loss and perplexity over the whole validation split", true},
    {"sample", sample_command, "continue a text, or hold a conversation", true},
    {"inspect", inspect_command, "show what a run, checkpoint, model folder or data file holds"},
    {"export", export_command, "write a run's model or adapter for transformers and PEFT"},
    {"upcycle", upcycle_command, "make a mixture of experts of a dense Hugging Face folder"},
    {"config", config_command,
     "print the configuration, its essential keys, schema or documentation"},
    {"bench", bench_command, "measure real training steps on this machine", true},
    {"doctor", doctor_command, "show this machine: processor, speeds, libraries, memory, GPU",
     true},
};

void print_help() {
  std::cout << "hybrid trains and fine-tunes language models on CPUs and NVIDIA GPUs.\n\n"
               "usage: hybrid COMMAND [options]\n\nCommands:\n";
  for (const Command& command : kCommands) {
    std::cout << "  " << command.name << std::string(10 - std::strlen(command.name), ' ')
              << command.summary << "\n";
  }
  std::cout
      << "\nhybrid COMMAND --help says more about each; hybrid --version prints the version.\n";
}

bool computes(const std::vector<std::string>& arguments) {
  return !arguments.empty() &&
         std::any_of(std::begin(kCommands), std::end(kCommands), [&](const Command& command) {
           return command.computes && arguments.front() == command.name;
         });
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) throw UsageError("a command is missing; hybrid --help lists them");
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") return print_help(), 0;
  if (name == "--version") return std::cout << "hybrid " << project_version() << "\n", 0;
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  throw UsageError(concat("there is no command \"", name, "\"", name_hint(name, names)));
}

/// The message after "error: ", truncated if it would fill the screen.
void print_error(const std::string& message) {
  constexpr int kMostLines = 10;
  std::istringstream lines(message);
  int printed = 0, left_out = 0;
  for (std::string line; std::getline(lines, line);) {
    if (printed == kMostLines) {
      ++left_out;
    } else {
      std::cerr << (printed++ == 0 ? "error: " : "       ") << line << "\n";
    }
  }
  if (left_out > 0) std::cerr << "       and " << left_out << " more\n";
}

int run(const std::vector<std::string>& arguments) {
  try {
    const int code = dispatch(arguments);
    std::cout.flush();
    if (!std::cout)
      throw IoError("standard output could not be written: its disk is full, or it was closed");
    return code;
  } catch (const Error& error) {
    print_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return static_cast<int>(ExitCode::kMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(concat(error.path1().string(), ": cannot be reached: ", error.code().message()));
    return static_cast<int>(ExitCode::kNoInput);
  } catch (const std::exception& error) {
    print_error(concat("a mistake in this program: ", error.what()));
    return static_cast<int>(ExitCode::kInternal);
  }
}

/// Where standard input, output or error is closed, a file opened later would take its place, and
/// what is printed would land in it. Reading from it and writing to it fail as before.
void keep_standard_streams_apart() {
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace
}  // namespace hybrid_trainer

int main(int count, char** values) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write past the limit of a file's size fails instead
  std::signal(SIGCHLD, SIG_DFL);  // whoever started this may have had it ignored
  std::signal(SIGUSR1, SIG_IGN);  // a launcher asks again until a run takes it as a request to stop
  hybrid_trainer::keep_standard_streams_apart();
  const std::vector<std::string> arguments(values + std::min(count, 1), values + count);
  if (hybrid_trainer::computes(arguments)) hybrid_trainer::let_waiting_threads_sleep(values);
  const hybrid_trainer::PrintableTerminal output(std::cout, STDOUT_FILENO),
      errors(std::cerr, STDERR_FILENO);  // texts and names come from files and models
  return hybrid_trainer::run(arguments);
}
