#include "src/observability/watch/terminal_view.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>
#include <algorithm>
#include <csignal>
#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/messages.h"
#include "src/core/narrow.h"
#include "src/files/escaped_text.h"
#include "src/observability/watch/terminal_drawing.h"

namespace hybrid_trainer {

WindowStyle WindowStyle::of(int descriptor) {
  WindowStyle style;
  if (::isatty(descriptor) != 1) return style;
  winsize size{};
  if (::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 && size.ws_row > 0)
    style.columns = size.ws_col, style.rows = size.ws_row;
  style.colors = is_color_terminal(descriptor);
  return style;
}

namespace {

std::string list_of(const WatchedFolder& folder, const WindowStyle& window) {
  std::size_t widest = 4;
  for (const auto& run : folder.runs()) widest = std::max(widest, columns_of(run->name()));
  const std::size_t name_columns = std::min(widest, window.columns > 72 ? window.columns - 56 : 16);
  std::vector<StyledLine> lines(1);
  lines.front()
      .add("run", kSoft)
      .pad_to(name_columns + 2)
      .add("loss over steps   loss    phase    step           state", kSoft);
  for (const auto& run : folder.runs()) {
    StyledLine& line = lines.emplace_back();
    line.add(cut_to(run->name(), name_columns)).pad_to(name_columns + 2);
    if (run->has_steps()) {
      const StepRecord& last = run->last();
      line.add(sparkline(run->content().curves(), 16)).pad_to(name_columns + 20);
      line.add(units::fixed(last.loss, 4)).pad_to(name_columns + 28);
      line.add(name_of(last.phase), color_of(last.phase)).pad_to(name_columns + 37);
      line.add(
          concat(last.step, run->planned_steps() > 0 ? concat("/", run->planned_steps()) : ""));
    }
    line.pad_to(name_columns + 52);
    line.add(run->state(), run->is_active() ? kGreen : run->state() == "finished" ? "" : kRed);
    if (const auto left = run->seconds_left()) line.add(" " + units::duration(*left));
  }
  std::string text;
  for (const StyledLine& line : lines) text += line.text(window.columns, window.colors) + "\n";
  return text;
}

/// Makes the terminal show an alternate screen and deliver keys immediately, during its lifetime.
class TerminalScreen {
 public:
  TerminalScreen() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&signals, signal);
    ::sigprocmask(SIG_BLOCK, &signals, &signals_before_);
    signals_ = FileDescriptor(::signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    has_keys_ = ::tcgetattr(STDIN_FILENO, &keys_before_) == 0;
    if (has_keys_) {
      termios keys = keys_before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);
      keys.c_cc[VMIN] = 0;
      keys.c_cc[VTIME] = 0;
      ::tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    print_trusted(std::cout, "\x1b[?1049h\x1b[?25l");
  }
  ~TerminalScreen() {
    print_trusted(std::cout, "\x1b[?25h\x1b[?1049l");
    std::cout.flush();
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &keys_before_);
    ::sigprocmask(SIG_SETMASK, &signals_before_, nullptr);
  }
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  bool show(const std::string& view, std::size_t rows) {
    std::string out = "\x1b[H";
    std::size_t row = 0;
    for (std::size_t begin = 0, end = 0;
         row < rows && (end = view.find('\n', begin)) != std::string::npos; begin = end + 1, ++row)
      out += (row > 0 ? "\r\n" : "") + view.substr(begin, end - begin) + "\x1b[K";
    print_trusted(std::cout, out + "\x1b[J");
    std::cout.flush();
    return static_cast<bool>(std::cout);
  }

  /// Waits this number of seconds. Returns false if the user wants to leave.
  bool waits(double seconds) {
    pollfd sources[] = {{signals_.number(), POLLIN, 0}, {has_keys_ ? STDIN_FILENO : -1, POLLIN, 0}};
    if (::poll(sources, 2, narrow<int>(1000 * seconds)) <= 0) return true;
    signalfd_siginfo signal{};
    while (::read(signals_.number(), &signal, sizeof signal) == sizeof signal)
      if (signal.ssi_signo != SIGWINCH) return false;
    if (sources[1].revents == 0) return true;
    constexpr char kControlC = 3;
    char key = 0;
    const ssize_t got = ::read(STDIN_FILENO, &key, 1);
    if (got == 0 && (sources[1].revents & POLLHUP) != 0) return false;
    return got != 1 || (key != 'q' && key != 'Q' && key != kControlC);
  }

 private:
  sigset_t signals_before_{};
  FileDescriptor signals_;
  termios keys_before_{};
  bool has_keys_ = false;
};

}  // namespace

void refresh_all(WatchedFolder& folder) {
  folder.refresh();
  for (const auto& run : folder.runs()) run->refresh();
}

std::string view_of(const WatchedFolder& folder, const WindowStyle& window) {
  return folder.is_run() ? frame_of(*folder.runs().front(), window) : list_of(folder, window);
}

void watch_in_terminal(WatchedFolder& folder, double interval) {
  TerminalScreen screen;
  do {
    refresh_all(folder);
    const WindowStyle window = WindowStyle::of(STDOUT_FILENO);
    if (!screen.show(view_of(folder, window), window.rows)) return;
  } while (screen.waits(interval));
}

}  // namespace hybrid_trainer
