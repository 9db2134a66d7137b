#include "tests/campaign/campaign.h"

#include <fstream>
#include <iostream>
#include <sstream>
#include <string_view>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {

PartState read_part_state(const std::filesystem::path& file) {
  PartState state;
  std::ifstream in(file);
  for (std::string key; in >> key;) {
    if (key == "find") {
      std::string text;
      std::getline(in >> std::ws, text);
      state.finds.push_back(text);
    } else {
      in >> state.numbers[key];
    }
  }
  return state;
}

void write_part_state(const PartState& state, const std::filesystem::path& file) {
  const std::filesystem::path next = file.string() + ".next";
  {
    std::ofstream out(next);
    for (const auto& [key, value] : state.numbers) out << key << ' ' << value << '\n';
    for (const std::string& text : state.finds) out << "find " << text << '\n';
  }
  std::filesystem::rename(next, file);
}

void PartRun::find(const std::string& text) {
  std::cerr << "found: " << text << "\n";
  std::string line = text;
  for (char& c : line)
    if (c == '\n') c = ';';
  state.finds.push_back(line);
}

namespace {

int usage() {
  std::cerr << "usage: campaign crash_states|corruption|numbers|planted STATE_FILE SECONDS SEED "
               "[until_found]\n";
  return 64;
}

int run_part(const std::string& part, const std::filesystem::path& file, double seconds,
             std::uint64_t seed, bool until_found) {
  const TemporaryFolder folder;
  PartRun run{.state = read_part_state(file),
              .seed = seed,
              .folder = folder.path(),
              .end = std::chrono::steady_clock::now() +
                     std::chrono::milliseconds(static_cast<std::int64_t>(1000 * seconds)),
              .until_found = until_found};
  bool is_good = true;
  if (part == "crash_states") {
    open_crash_states(run);
  } else if (part == "corruption") {
    damage_files(run);
  } else if (part == "numbers") {
    inject_numbers(run);
  } else if (part == "planted") {
    is_good = find_planted_faults(run, 5000);
  } else {
    return usage();
  }
  write_part_state(run.state, file);
  return is_good && run.state.finds.empty() ? 0 : 1;
}

}  // namespace
}  // namespace hybrid_trainer

int main(int count, char** arguments) {
  if (count != 5 && count != 6) return hybrid_trainer::usage();
  std::ostringstream warnings;  // damaged files cause many
  hybrid_trainer::send_warnings_to(&warnings);
  try {
    return hybrid_trainer::run_part(arguments[1], arguments[2], std::stod(arguments[3]),
                                    std::stoull(arguments[4]), count == 6);
  } catch (const std::exception& error) {
    std::cerr << "error: " << error.what() << "\n";
    return 70;
  }
}
