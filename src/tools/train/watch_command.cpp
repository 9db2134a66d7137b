#include <unistd.h>
#include <cstdint>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/files/escaped_text.h"
#include "src/observability/watch/terminal_view.h"
#include "src/observability/watch/watch_server.h"
#include "src/tools/command_line.h"
#include "src/tools/commands.h"

namespace hybrid_trainer {

int watch_command(const std::vector<std::string>& arguments) {
  bool once = false;
  double interval = 1;
  std::optional<int> port;
  CommandSyntax syntax{
      .name = "watch",
      .usage = "RUN|RUNS_FOLDER [--port PORT | --once] [--interval SECONDS]",
      .description =
          "Shows the progress, loss curve, memory and decisions of a run during or after\n"
          "training. It only reads the run's folder. A folder of runs is shown as a list. Press\n"
          "q to quit. If the output is not a terminal with escape sequences, prints one view.\n"
          "With --port, serves a live page to browsers on this machine until Ctrl-C.",
      .operands = {"PATH"}};
  auto add = syntax.options.add_options();
  add("once", po::bool_switch(&once), "Print the current state without colors and exit.");
  add("port", optional_value(port, "PORT"),
      "Serve http://127.0.0.1:PORT/ instead: a live page of the run, /events, /metrics for "
      "Prometheus and /summary.json. 8321 is free on most machines; 0 uses any free port.");
  add("interval", po::value(&interval)->value_name("SECONDS")->default_value(1, "1"),
      "Seconds between reads of the folder, 0.1 to 60.");
  const auto operands = parse_command_line(syntax, arguments);
  if (!operands) return 0;
  if (!(interval >= 0.1 && interval <= 60))
    throw UsageError(concat("hybrid watch: --interval: got ", interval, ", want 0.1 to 60"));
  if (port && once) throw UsageError("hybrid watch: --port and --once are both given; give one");
  if (port && (*port < 0 || *port > 65535))
    throw UsageError(concat("hybrid watch: --port: got ", *port, ", want 0 to 65535"));
  WatchedFolder folder(operands->front());
  if (port) {
    WatchServer server(folder, static_cast<std::uint16_t>(*port));
    std::cout << "watching " << folder.name() << " at http://127.0.0.1:" << server.port()
              << "/ (Ctrl-C to stop)" << std::endl;
    server.run(interval);
    return 0;
  }
  if (once || !is_drawing_terminal(STDOUT_FILENO)) {
    refresh_all(folder);
    WindowStyle window = WindowStyle::of(STDOUT_FILENO);
    window.colors = false;
    std::cout << view_of(folder, window);
    return 0;
  }
  watch_in_terminal(folder, interval);
  return 0;
}

}  // namespace hybrid_trainer
