#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace hybrid_trainer::benchmarks {

/// Command line of a benchmark: "--name value" pairs and flags.
class Options {
 public:
  /// Throws UsageError if an argument is not in `valued` or `flags`, or if its value is missing.
  Options(const std::vector<std::string>& arguments, const std::vector<std::string>& valued,
          const std::vector<std::string>& flags);
  bool flag(const std::string& name) const { return given_.contains(name); }
  std::string text(const std::string& name, const std::string& otherwise) const;
  /// Returns an integer >= 1. Throws UsageError.
  std::int64_t number(const std::string& name, std::int64_t otherwise) const;
  /// Returns one of `choices`. Throws UsageError.
  std::string choice(const std::string& name, const std::string& otherwise,
                     const std::vector<std::string>& choices) const;

 private:
  std::map<std::string, std::string> given_;
};

/// Runs `body` on the arguments; turns errors into a line and exit code. "--help" prints `help`.
int run_program(int count, char** arguments, const char* help,
                const std::function<void(const std::vector<std::string>&)>& body);

double median(std::vector<double> values);

}  // namespace hybrid_trainer::benchmarks
