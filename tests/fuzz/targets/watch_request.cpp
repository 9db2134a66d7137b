#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <algorithm>
#include <array>
#include <thread>

#include "src/observability/jsonl_sink.h"
#include "src/observability/watch/watch_server.h"
#include "tests/fuzz/fuzz_target.h"

namespace hybrid_trainer {

namespace {

/// Starts a server whose thread ends with the process. Returns its port.
std::uint16_t serve(const std::filesystem::path& path) {
  auto* const folder = new WatchedFolder(path);
  auto* const server = new WatchServer(*folder, 0);
  std::thread([server] { server->run(3600); }).detach();
  return server->port();
}

/// Starts the servers of a folder of runs and of a run.
std::array<std::uint16_t, 2> serve_both() {
  const std::filesystem::path runs = input_folder() / "runs", run = runs / "a b";
  std::filesystem::create_directories(run);
  input_file("runs/a b/config.json", R"({"training": {"steps": 4}})");
  StepRecord record;
  record.step = 1, record.loss = 2.5, record.event = "<b>";
  JsonlSink(run / "metrics.jsonl").write(record);
  return {serve(runs), serve(run)};
}

/// Sends a connection's bytes and waits for an answer or the connection's end.
void request(std::uint16_t port, std::string_view bytes) {
  const int connection = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET, to.sin_port = htons(port), to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const linger reset{.l_onoff = 1, .l_linger = 0};  // leaves no waiting port behind
  ::setsockopt(connection, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  require(::connect(connection, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0,
          "cannot connect to the server");
  [[maybe_unused]] const auto sent = ::send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  ::shutdown(connection, SHUT_WR);
  char answer[4096];
  const ssize_t got = ::recv(connection, answer, sizeof answer, 0);
  ::close(connection);
  const std::string_view status(answer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  require(!status.starts_with("HTTP/1.1 500") && !status.starts_with("HTTP/1.0 500"),
          "the server answers with an internal error");
}

}  // namespace

void read_input(std::string_view input) {
  static const std::array<std::uint16_t, 2> ports = serve_both();
  for (const std::uint16_t port : ports) request(port, input);
}

}  // namespace hybrid_trainer
