#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <string>
#include <vector>

namespace hybrid_trainer {

/// The result of one run of the `hybrid` tool.
struct ProcessResult {
  int exit_code = -1;  // -1 if a signal ended it
  std::string output;  // standard output
  std::string errors;  // standard error
  double processor_seconds = 0;
};

/// Runs the built tool in `folder` and waits for it. `input`: a file for its standard input.
ProcessResult run_hybrid(const std::filesystem::path& folder,
                         const std::vector<std::string>& arguments,
                         const std::string& input = "/dev/null");

/// A folder for the lifetime of a test program, with "text.txt", a data folder "data" of its
/// characters and a finished run "run" of a tiny model on it.
const std::filesystem::path& trained_folder();

/// Command line arguments that train the tiny model of trained_folder().
std::vector<std::string> tiny_training(const std::string& run,
                                       const std::vector<std::string>& more = {});

/// In trained_folder(); fails the test where the command does.
ProcessResult in_trained_folder(const std::vector<std::string>& arguments);

/// Fails the test where the output is anything but one JSON object.
boost::json::object only_object(const std::string& output);

}  // namespace hybrid_trainer
