#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// Result of one run of the `hybrid` tool.
struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended it
  std::string output;  // standard output
  std::string errors;  // standard error
  double processor_seconds = 0;
};

/// Runs the built tool in `folder` and waits for it. `input` is a file for its standard input.
ProcessResult run_hybrid(const std::filesystem::path& folder,
                         const std::vector<std::string>& arguments,
                         const std::string& input = "/dev/null");

/// A folder that lasts as long as the test program: "text.txt", a data folder "data" of its
/// characters, and a finished run "run" of a tiny model.
const std::filesystem::path& trained_folder();

/// Command line arguments that train the tiny model of trained_folder().
std::vector<std::string> tiny_training(const std::string& run,
                                       const std::vector<std::string>& more = {});

/// Runs the tool in trained_folder(). Fails the test if the command fails.
ProcessResult in_trained_folder(const std::vector<std::string>& arguments);

/// Parses one JSON object. Fails the test if the output is anything else.
boost::json::object only_object(const std::string& output);

}  // namespace hybrid_trainer
