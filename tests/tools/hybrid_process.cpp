#include "tests/tools/hybrid_process.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <boost/json.hpp>
#include <cstdlib>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string quoted(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

double children_seconds() {
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(use.ru_utime) + seconds(use.ru_stime);
}

/// Repetitive sentences, so that a few steps lower the loss.
std::string some_text() {
  std::string text;
  for (int i = 0; i < 150; ++i)
    text += concat("Line ", i, ": the quick brown fox jumps over the lazy dog.\n");
  return text;
}

class TrainedFolder {
 public:
  TrainedFolder() {
    write_text(folder_ / "text.txt", some_text());
    expect_success({"prepare", "text.txt", "--output", "data", "--tokenizer", "characters"});
    expect_success(tiny_training("run"));
  }
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  void expect_success(const std::vector<std::string>& arguments) {
    const ProcessResult result = run_hybrid(path(), arguments);
    if (result.exit_code != 0)
      throw std::runtime_error(concat("hybrid ", arguments.front(), " fails: ", result.errors));
  }
  TemporaryFolder folder_;
};

}  // namespace

ProcessResult run_hybrid(const std::filesystem::path& folder,
                         const std::vector<std::string>& arguments, const std::string& input) {
  const TemporaryFolder streams;
  std::string command = concat("cd ", quoted(folder.string()), " && ", quoted(HT_HYBRID_TOOL));
  for (const std::string& argument : arguments) command += concat(" ", quoted(argument));
  command += concat(" >", quoted((streams / "out").string()), " 2>",
                    quoted((streams / "err").string()), " <", quoted(input));
  const double before = children_seconds();
  const int status = std::system(command.c_str());
  ProcessResult result;
  result.processor_seconds = children_seconds() - before;
  // A shell returns 128 + signal for a child that a signal ended.
  if (WIFEXITED(status) && WEXITSTATUS(status) < 128) result.exit_code = WEXITSTATUS(status);
  result.output = read_text(streams / "out");
  result.errors = read_text(streams / "err");
  return result;
}

const std::filesystem::path& trained_folder() {
  static const TrainedFolder folder;
  return folder.path();
}

std::vector<std::string> tiny_training(const std::string& run,
                                       const std::vector<std::string>& more) {
  std::vector<std::string> arguments{"train", "--preset", "tiny", "--data", "data", "--run", run};
  for (const char* setting : {"model.layers=1", "model.heads=2", "model.width=16",
                              "model.context=16", "data.batch_size=4", "data.sequence_length=16",
                              "training.steps=6", "checkpoint.every_steps=2"}) {
    arguments.insert(arguments.end(), {"--set", setting});
  }
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

ProcessResult in_trained_folder(const std::vector<std::string>& arguments) {
  ProcessResult result = run_hybrid(trained_folder(), arguments);
  EXPECT_EQ(result.exit_code, 0) << arguments.front() << ": " << result.errors;
  return result;
}

boost::json::object only_object(const std::string& output) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(output, error);
  EXPECT_FALSE(error) << output;
  return value.is_object() ? value.get_object() : boost::json::object{};
}

}  // namespace hybrid_trainer
