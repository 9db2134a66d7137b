#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <boost/json.hpp>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/core/process.h"
#include "src/files/escaped_text.h"
#include "src/files/text.h"
#include "src/run/run_files.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"
#include "src/tools/waiting_threads.h"

namespace hybrid_trainer {

namespace {

void print_help() {
  std::cout << "hybrid trains models of text, embeddings, classes, speech, images and time series "
               "on CPUs and GPUs.\n"
               "\n"
               "usage: hybrid COMMAND [options]\n"
               "\n"
               "Commands:\n";
  for (const Command& command : command_table()) {
    std::cout << "  " << command.name << std::string(12 - std::strlen(command.name), ' ')
              << command.summary << "\n";
  }
  std::cout << "\n"
               "hybrid COMMAND --help describes a command; hybrid --version prints the version.\n";
}

void print_first_steps() {
  std::cerr
      << "hybrid trains models of text, embeddings, classes, speech, images and time series on "
         "CPUs and GPUs.\n"
         "\n"
         "Check this machine:                 hybrid doctor\n"
         "Check whether a model fits:         hybrid plan --model FOLDER --method qlora\n"
         "Preview the training rows:          hybrid rows FILE --model FOLDER --show 1\n"
         "Fine-tune a model on my examples:   hybrid finetune --model FOLDER --data FILE --run "
         "RUN\n"
         "Chat with the result:               hybrid chat RUN\n"
         "Train on my own text:               hybrid prepare TEXT... --output DATA\n"
         "                                    hybrid train --preset tiny --data DATA --run RUN\n"
         "FOLDER is a Hugging Face model folder or a GGUF file. FILE has one JSON object per "
         "line:\n"
         "  {\"prompt\": \"...\", \"completion\": \"...\"}\n"
         "hybrid --help lists all commands.\n";
}

int dispatch(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return print_first_steps(), static_cast<int>(ExitCode::kUsage);
  const std::string& name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") return print_help(), 0;
  if (name == "--describe") return std::cout << description_of_all() << "\n", 0;
  if (name == "--version") return std::cout << "hybrid " << project_version() << "\n", 0;
  std::vector<std::string> names;
  for (const Command& command : command_table()) {
    if (name == command.name) return command.run({arguments.begin() + 1, arguments.end()});
    names.emplace_back(command.name);
  }
  throw UsageError(concat("there is no command \"", name, "\"", name_hint(name, names)));
}

/// Prints a message after "error: ", truncated if it would fill the screen.
void print_error(const std::string& message) {
  constexpr int kMaxLines = 10;
  constexpr std::size_t kLongestLine = 4000;
  std::istringstream lines(message);
  int printed = 0, left_out = 0;
  for (std::string line; std::getline(lines, line);) {
    if (printed == kMaxLines) {
      ++left_out;
    } else {
      if (line.size() > kLongestLine)
        line = line.substr(0, whole_characters(line, kLongestLine)) + "…";
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
      throw IoError("cannot write to standard output: its disk is full, or it was closed");
    return code;
  } catch (const DescriptionRequested& requested) {
    std::cout << boost::json::serialize(json_of(requested.description)) << std::endl;
    return 0;
  } catch (const Error& error) {
    print_error(error.what());
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    print_error("out of memory");
    return static_cast<int>(ExitCode::kMemory);
  } catch (const std::filesystem::filesystem_error& error) {
    print_error(concat(error.path1().string(), ": cannot access it: ", error.code().message()));
    return static_cast<int>(ExitCode::kNoInput);
  } catch (const std::exception& error) {
    print_error(concat("a mistake in this program: ", error.what()));
    return static_cast<int>(ExitCode::kInternal);
  }
}

/// Opens /dev/null for closed standard streams, so that no file opened later takes their place.
void open_closed_standard_streams() {
  for (const int stream : {0, 1, 2})
    if (::fcntl(stream, F_GETFD) == -1) ::open("/dev/null", stream == 0 ? O_WRONLY : O_RDONLY);
}

}  // namespace

}  // namespace hybrid_trainer

int main(int count, char** values) try {
  std::signal(SIGXFSZ, SIG_IGN);  // writing past the file size limit fails instead
  std::signal(SIGCHLD, SIG_DFL);  // the parent process may have ignored it
  std::signal(SIGUSR1, SIG_IGN);  // a launcher repeats it until a run accepts it as a stop request
  hybrid_trainer::end_on_signals();
  hybrid_trainer::open_closed_standard_streams();
  const std::vector<std::string> arguments(values + std::min(count, 1), values + count);
  hybrid_trainer::set_idle_thread_policy(values);
  const hybrid_trainer::PrintableTerminal output(std::cout, STDOUT_FILENO),
      errors(std::cerr, STDERR_FILENO);  // texts and names come from files and models
  return hybrid_trainer::run(arguments);
} catch (const std::bad_alloc&) {  // before run, or while it prints an error
  std::fputs("error: out of memory\n", stderr);
  return static_cast<int>(hybrid_trainer::ExitCode::kMemory);
}
