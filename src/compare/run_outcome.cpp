#include "src/compare/run_outcome.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <boost/json.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <regex>
#include <thread>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/interruption.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/files/input_file.h"
#include "hybrid_trainer/models/model_family.h"
#include "src/core/clock.h"
#include "src/files/checksum.h"
#include "src/files/config_fields.h"
#include "src/files/json.h"
#include "src/files/json_lookup.h"
#include "src/files/output_file.h"
#include "src/observability/jsonl_sink.h"
#include "src/observability/step_record_json.h"
#include "src/run/run_files.h"
#include "src/run/run_memory.h"
#include "src/trainer/run_model.h"

namespace hybrid_trainer {

namespace fs = std::filesystem;

namespace {

constexpr auto kPollInterval = std::chrono::milliseconds(20);
constexpr double kSecondsToEnd = 5;
constexpr std::size_t kLongestLineShown = 80;

FileDescriptor created(const std::filesystem::path& path) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.number() < 0) throw IoError(system_problem(path, "cannot create"));
  return file;
}

class SpawnSettings {
 public:
  SpawnSettings(const std::filesystem::path& folder, int output, int errors) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions, errors, 2);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    sigemptyset(&none);
    sigemptyset(&usual);
    for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU, SIGXFSZ})
      sigaddset(&usual, signal);
    ::posix_spawnattr_setsigmask(&attributes, &none);  // compute threads block some signals
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSettings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

/// Waits for a process and returns its status. After a stop request, signals the process group.
int wait_for(pid_t process, const Interruption& interruption) {
  std::optional<Clock::time_point> asked;
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(process, &status, WNOHANG);
    if (ended == process) return status;
    if (ended < 0 && errno != EINTR) throw IoError("cannot wait for a program");
    if (interruption.requested() && !asked) {
      asked = Clock::now();
      ::kill(-process, SIGTERM);
    }
    if (asked && seconds_since(*asked) > kSecondsToEnd) ::kill(-process, SIGKILL);
    std::this_thread::sleep_for(kPollInterval);
  }
}

std::optional<ProgramLine> line_of(const std::string& text) {
  try {
    const json::value line = parse_json_text(text, "line");
    const auto step = number_at(line, "/step"), tokens = number_at(line, "/tokens"),
               seconds = number_at(line, "/seconds"), loss = number_at(line, "/validation_loss");
    constexpr double kMax = 9e18;  // about the largest integer
    const auto counts = [](double number) { return number >= 0 && number < kMax; };
    if (!step || !tokens || !seconds || !loss || !counts(*step) || !counts(*tokens) || *seconds < 0)
      return {};
    return ProgramLine{static_cast<std::int64_t>(*step), static_cast<std::int64_t>(*tokens),
                       *seconds, *loss, number_at(line, "/flops")};
  } catch (const DataError&) {
    return {};
  }
}

constexpr std::size_t kMaxOutputBytes = std::size_t{64} << 20;
constexpr const char* kStandardOutput = "stdout.txt";

json::value summary_of(const fs::path& run) {
  const fs::path file = RunPaths{run.string()}.summary();
  json::value summary = read_json(file);
  if (!summary.is_object()) throw DataError(file.string() + ": want an object");
  return summary;
}

/// Returns the charged cost of all phases, or nullopt if a phase has no cost.
std::optional<double> charged_cost(const json::value& summary) {
  double cost = 0;
  for (const Phase phase : kAllPhases)
    cost += number_at(summary, concat("/phases/", name_of(phase), "/cost")).value_or(NAN);
  return std::isnan(cost) ? std::nullopt : std::optional(cost);
}

/// Returns the charged FLOPs: for each step, its cost times the FLOPs of a Full step of this shape.
double charged_flops(const HybridTrainerConfig& config, const std::string& metrics) {
  const Stream nowhere(MemoryPool::create("nowhere", {}, simulated_memory({})));
  const auto model = make_network(config.model, 0, nowhere);
  HybridTrainerConfig of_step = config;
  double flops = 0;
  for_each_record(metrics, [&](const StepRecord& record) {
    const std::int64_t examples = record.effective_batch;
    of_step.data.sequence_length = record.tokens / std::max<std::int64_t>(1, examples);
    const Batch batch = model->empty_batch(batch_form(of_step, examples), nowhere);
    flops += record.cost * model->step_flops(batch);
  });
  return flops;
}

std::string checksum_of_losses(const std::string& metrics) {
  Checksum sum;
  for_each_record(metrics, [&](const StepRecord& record) {
    const double losses[] = {record.loss, record.validation_loss.value_or(0)};
    sum.add(losses, sizeof losses);
  });
  return sum.text();
}

json::array as_array(const std::vector<std::string>& texts) {
  return json::array(texts.begin(), texts.end());
}

json::object program_summary(const std::vector<std::string>& command, const ProgramOutput& output,
                             std::string failure) {
  if (failure.empty()) failure = output.problem;
  if (failure.empty() && output.lines.empty())
    failure = "printed no {\"step\", \"tokens\", \"seconds\", \"validation_loss\"}";
  const char* bad = output.problem.empty() ? "failed" : "diverged";
  json::object summary{{"command", as_array(command)},
                       {"end", failure.empty() ? "finished" : bad},
                       {"failure", failure},
                       {"junk_lines", output.junk_lines},
                       {"first_junk_line", output.first_junk}};
  if (output.lines.empty()) return summary;
  const ProgramLine& last = output.lines.back();
  summary["final_validation_loss"] = last.validation_loss;
  summary["steps"] = last.step;
  summary["tokens"] = last.tokens;
  summary["seconds"] = last.seconds;
  if (last.flops) summary["flops"] = *last.flops;
  return summary;
}

}  // namespace

std::string run_program(const ProgramCall& call, const Interruption& interruption) {
  const FileDescriptor output = created(call.output), errors = created(call.errors);
  const SpawnSettings settings(call.folder, output.number(), errors.number());
  std::vector<char*> arguments;
  for (const std::string& argument : call.command)
    arguments.push_back(const_cast<char*>(argument.c_str()));  // required by execve(2)
  arguments.push_back(nullptr);
  pid_t process = 0;
  const int problem = ::posix_spawnp(&process, arguments[0], &settings.actions,
                                     &settings.attributes, arguments.data(), environ);
  if (problem != 0) return concat(call.command[0], " cannot be started: ", std::strerror(problem));
  const int status = wait_for(process, interruption);
  if (WIFSIGNALED(status))
    return concat("killed by signal ", WTERMSIG(status), " (", ::strsignal(WTERMSIG(status)), ")");
  return WEXITSTATUS(status) == 0 ? "" : concat("ended with exit status ", WEXITSTATUS(status));
}

ProgramOutput parse_program_output(const std::string& text) {
  // NaN and infinity as Python, C and JavaScript print them.
  static const std::regex not_finite(R"(:\s*[-+]?(nan|inf|infinity)\b)", std::regex::icase);
  ProgramOutput found;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.empty()) continue;
    const std::string shown = line.substr(0, kLongestLineShown);
    if (const auto parsed = line_of(line)) {
      found.lines.push_back(*parsed);
    } else if (line[0] == '{' && line.size() < 1000 &&
               line.find("\"validation_loss\"") != std::string::npos &&
               std::regex_search(line, not_finite)) {
      if (found.problem.empty()) found.problem = "a number is not finite: " + shown;
    } else if (found.junk_lines++ == 0) {
      found.first_junk = shown;
    }
  }
  return found;
}

std::vector<LossPoint> loss_curve(const fs::path& run, std::size_t most) {
  std::vector<LossPoint> points;
  if (fs::exists(run / kStandardOutput)) {
    for (const ProgramLine& line :
         parse_program_output(read_file(run / kStandardOutput, kMaxOutputBytes)).lines)
      points.push_back({static_cast<double>(line.tokens), line.seconds, line.validation_loss});
    return points;
  }
  const std::string metrics = RunPaths{run.string()}.metrics();
  if (!fs::exists(metrics)) return points;
  LossPoint at;
  for_each_record(metrics, [&](const StepRecord& record) {
    at.tokens += static_cast<double>(record.tokens);
    at.seconds += record.seconds;
    at.loss = record.loss;
    if (std::isfinite(record.loss)) points.push_back(at);
  });
  const std::size_t merged = (points.size() + most - 1) / std::max<std::size_t>(most, 1);
  std::vector<LossPoint> fewer;
  for (std::size_t begin = 0; begin < points.size(); begin += merged) {
    const std::size_t end = std::min(begin + merged, points.size());
    LossPoint mean;
    for (std::size_t i = begin; i < end; ++i) {
      const double share = 1.0 / static_cast<double>(end - begin);
      mean.tokens += share * points[i].tokens;
      mean.seconds += share * points[i].seconds;
      mean.loss += share * points[i].loss;
    }
    fewer.push_back(mean);
  }
  return fewer;
}

RunOutcome read_outcome(const fs::path& run, const RunPoint& point) {
  const json::value summary = summary_of(run);
  RunOutcome outcome;
  outcome.point = point;
  outcome.steps = count_at(summary, "/steps");
  outcome.tokens = count_at(summary, "/tokens");
  outcome.seconds = number_at(summary, "/seconds").value_or(0);
  outcome.cost = charged_cost(summary);
  outcome.flops = number_at(summary, "/flops");
  outcome.predicted_steps = count_at(summary, "/phases/predict/steps");
  outcome.predictions = prediction_counts(summary);
  const RunPaths paths{run.string()};
  if (outcome.cost && fs::exists(paths.config()) && fs::exists(paths.metrics())) {
    outcome.flops = charged_flops(config_of_run(paths), paths.metrics());
    outcome.losses = checksum_of_losses(paths.metrics());
  }
  const std::string end = text_at(summary, "/end");
  outcome.failure = text_at(summary, "/failure");
  outcome.diverged = end == "diverged";
  const auto of_average = number_at(summary, "/final_average_validation_loss");
  const auto loss = of_average ? of_average : number_at(summary, "/final_validation_loss");
  if (end == "finished" && loss) {
    outcome.loss = loss;
  } else if (outcome.failure.empty()) {
    outcome.failure = end == "finished" ? "its validation loss is not finite" : end;
  }
  if (const std::int64_t junk = count_at(summary, "/junk_lines"); junk > 0)
    outcome.remark = concat(junk, " lines of its standard output contain no loss, the first: ",
                            text_at(summary, "/first_junk_line"));
  return outcome;
}

bool is_finished(const TrainingRunSettings& run) {
  const RunPaths paths{run.run.string()};
  if (!paths.contains_run()) return false;
  const HybridTrainerConfig before = config_of_run(paths);
  HybridTrainerConfig now = run.task(run)->completed(run.config.with_parts());
  if (now.memory.plan == "auto") now = with_memory_of(before, std::move(now));
  if (config_json(now) != config_json(before))
    throw ConfigError({concat(paths.root,
                              ": contains a run with another configuration than the spec's; remove "
                              "that folder, or choose another one for --output")});
  return end_of_run(paths) == "finished";
}

bool is_finished(const fs::path& run, const std::vector<std::string>& command) {
  if (!fs::exists(RunPaths{run.string()}.summary())) return false;
  const json::value summary = summary_of(run);
  const json::value* const before = summary.get_object().if_contains("command");
  return text_at(summary, "/end") == "finished" && before != nullptr &&
         *before == json::value(as_array(command));
}

bool run_program_variant(const ComparisonSpec& spec, const std::vector<std::string>& command,
                         const fs::path& run, const Interruption& interruption) {
  fs::remove_all(run);
  make_folders(run);
  const fs::path output = run / kStandardOutput;
  const std::string failure =
      run_program({command, spec.folder, output, run / "stderr.txt"}, interruption);
  if (!failure.empty() && interruption.requested()) return false;
  ProgramOutput told;
  std::string problem = failure;
  try {
    told = parse_program_output(read_file(output, kMaxOutputBytes));
  } catch (const DataError& error) {
    if (problem.empty()) problem = error.what();
  }
  replace_file(RunPaths{run.string()}.summary(),
               pretty_json(program_summary(command, told, problem)) + "\n");
  return true;
}

}  // namespace hybrid_trainer
