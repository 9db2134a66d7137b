#include "tests/benchmarks/program.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <new>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"

namespace hybrid_trainer::benchmarks {

Options::Options(const std::vector<std::string>& arguments, const std::vector<std::string>& valued,
                 const std::vector<std::string>& flags) {
  const auto has = [](const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i];
    if (has(flags, name)) {
      given_[name] = "";
    } else if (!has(valued, name)) {
      throw UsageError("unknown option " + name + "; see --help");
    } else if (i + 1 == arguments.size()) {
      throw UsageError(name + " needs a value; see --help");
    } else {
      given_[name] = arguments[++i];
    }
  }
}

std::string Options::text(const std::string& name, const std::string& otherwise) const {
  const auto found = given_.find(name);
  return found == given_.end() ? otherwise : found->second;
}

std::int64_t Options::number(const std::string& name, std::int64_t otherwise) const {
  if (!given_.contains(name)) return otherwise;
  const std::string& value = given_.at(name);
  std::int64_t number = 0;
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc{} || stop != end || number < 1)
    throw UsageError(concat(name, " ", value, "; want a whole number from 1"));
  return number;
}

std::string Options::choice(const std::string& name, const std::string& otherwise,
                            const std::vector<std::string>& choices) const {
  const std::string value = text(name, otherwise);
  if (std::find(choices.begin(), choices.end(), value) == choices.end())
    throw UsageError(concat(name, " ", value, name_hint(value, choices)));
  return value;
}

int run_program(int count, char** arguments, const char* help,
                const std::function<void(const std::vector<std::string>&)>& body) {
  const std::vector<std::string> given(arguments + 1, arguments + count);
  if (std::find(given.begin(), given.end(), "--help") != given.end()) {
    std::printf("%s", help);
    return 0;
  }
  const auto fails = [](const char* message, ExitCode code) {
    std::fprintf(stderr, "error: %s\n", message);
    return static_cast<int>(code);
  };
  try {
    body(given);
    return 0;
  } catch (const Error& error) {
    return fails(error.what(), error.code());
  } catch (const std::bad_alloc&) {
    return fails("out of memory", ExitCode::kMemory);
  } catch (const std::exception& error) {
    return fails(error.what(), ExitCode::kInternal);
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace hybrid_trainer::benchmarks
