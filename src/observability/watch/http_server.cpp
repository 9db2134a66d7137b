#include "src/observability/watch/http_server.h"

#include <sys/socket.h>
#include <algorithm>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <set>

#include "hybrid_trainer/core/error.h"
#include "src/core/clock.h"
#include "src/files/escaped_text.h"

namespace hybrid_trainer {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

namespace {

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(i + 1, 2);
    const char* const last = digits.data() + digits.size();
    unsigned char byte = 0;
    const bool is_coded = text[i] == '%' && digits.size() == 2 &&
                          std::from_chars(digits.data(), last, byte, 16).ptr == last;
    out += is_coded ? static_cast<char>(byte) : text[i];
    if (is_coded) i += 2;
  }
  return out;
}

constexpr std::uint32_t kMaxHeader = 16384;
constexpr std::chrono::seconds kPatience{30};
constexpr std::chrono::seconds kCheckInterval{1};  // between checks of a stream's connection

bool is_closed(beast::tcp_stream& stream) {
  char byte = 0;
  const ssize_t got = ::recv(stream.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

template <class Message>
void set_headers(Message& message, const std::string& policy = "") {
  message.set(http::field::cache_control, "no-store");
  message.set("X-Content-Type-Options", "nosniff");
  message.set("Content-Security-Policy",
              (policy.empty() ? content_policy("") : policy) + "; frame-ancestors 'none'");
}

/// Parses a request line's target, such as "/run/a%20b/?from=3".
HttpRequest request_of(std::string_view target, std::string_view last_event) {
  HttpRequest request;
  request.last_event = last_event;
  const std::size_t question = target.find('?');
  request.path = percent_decoded(target.substr(0, question));
  std::string_view query = question == target.npos ? "" : target.substr(question + 1);
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    const std::size_t equals = pair.find('=');
    if (equals != pair.npos)
      request.query[percent_decoded(pair.substr(0, equals))] =
          percent_decoded(pair.substr(equals + 1));
  }
  return request;
}

/// Returns whether a Host header names this machine, which prevents DNS rebinding.
bool is_local(std::string_view host) {
  if (host.starts_with("[::1]")) return true;
  const std::string_view name = host.substr(0, host.find(':'));
  return name == "localhost" || name == "127.0.0.1";
}

}  // namespace

using asio::use_awaitable;
using asio::ip::tcp;
using boost::system::error_code;

class HttpServer::Engine {
 public:
  explicit Engine(std::function<HttpAnswer(const HttpRequest&)> answer)
      : answer_(std::move(answer)), acceptor_(context_), ticks_(context_), signals_(context_) {}

  void listen(std::uint16_t port) {
    const tcp::endpoint here(asio::ip::address_v4::loopback(), port);
    error_code error;
    acceptor_.open(here.protocol(), error);
    if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) acceptor_.bind(here, error);
    if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (!error) return;
    if (error == asio::error::address_in_use)
      throw InUse(concat("port ", port, " of 127.0.0.1 is in use by another program; give another ",
                         "one with --port, or 0 for any free one"));
    throw CannotCreate(concat("cannot listen on port ", port, " of 127.0.0.1: ", error.message()));
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

  void run(double interval, const std::function<bool()>& tick) {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) signals_.add(signal);
    signals_.async_wait([this](const error_code& error, int) {
      if (!error) context_.stop();
    });
    asio::co_spawn(context_, accept(), asio::detached);
    asio::co_spawn(context_, keep_ticking(interval, tick), [this](std::exception_ptr problem) {
      problem_ = problem;
      if (problem) context_.stop();
    });
    context_.run();
    if (problem_) std::rethrow_exception(problem_);
  }
  void stop() { context_.stop(); }

 private:
  using Timer = asio::steady_timer;

  asio::awaitable<void> keep_ticking(double interval, std::function<bool()> tick) {
    const auto pause = std::chrono::milliseconds(static_cast<std::int64_t>(1000 * interval));
    for (;;) {
      if (tick()) {
        ++update_count_;
        for (Timer* const stream : streams_) stream->cancel();
      }
      ticks_.expires_after(pause);
      co_await ticks_.async_wait(use_awaitable);
    }
  }

  asio::awaitable<void> accept() {
    for (;;) {
      error_code error;
      tcp::socket socket =
          co_await acceptor_.async_accept(asio::redirect_error(use_awaitable, error));
      if (!error && connections_ < kMaxConnections) {
        asio::co_spawn(context_, serve(beast::tcp_stream(std::move(socket))), asio::detached);
      } else if (error) {  // for example no free descriptor
        Timer pause(context_, std::chrono::milliseconds(100));
        co_await pause.async_wait(asio::redirect_error(use_awaitable, error));
      }
    }
  }

  asio::awaitable<void> serve(beast::tcp_stream stream) {
    ++connections_;
    try {
      beast::flat_buffer buffer;
      bool continues = true;
      while (continues) {
        http::request_parser<http::string_body> parser;
        parser.header_limit(kMaxHeader);
        parser.body_limit(kMaxHeader);
        stream.expires_after(kPatience);
        co_await http::async_read(stream, buffer, parser, use_awaitable);
        continues = co_await reply(stream, parser.get());
      }
    } catch (const std::exception&) {  // the client disconnected, was slow or broke HTTP
    }
    error_code ignored;
    stream.socket().shutdown(tcp::socket::shutdown_send, ignored);
    --connections_;
  }

  HttpAnswer answer_to(const http::request<http::string_body>& request) const {
    const std::string_view host = request[http::field::host];
    if (!is_local(host) && !(host.empty() && request.version() == 10))
      return {.status = 403,
              .type = "text/plain",
              .body = "this page is only available at 127.0.0.1\n"};
    if (request.method() != http::verb::get && request.method() != http::verb::head)
      return {.status = 405, .type = "text/plain", .body = "want GET\n"};
    try {
      return answer_(request_of(request.target(), request["Last-Event-ID"]));
    } catch (const std::exception& error) {
      return {.status = 500, .type = "text/plain", .body = concat(error.what(), "\n")};
    }
  }

  /// Returns false if the connection must end.
  asio::awaitable<bool> reply(beast::tcp_stream& stream,
                              const http::request<http::string_body>& request) {
    HttpAnswer answer = answer_to(request);
    const bool is_head = request.method() == http::verb::head;
    stream.expires_after(kPatience);
    if (answer.events && !is_head) {
      co_await send_events(stream, answer.events, request.version());
      co_return false;
    }
    http::response<http::string_body> response(static_cast<http::status>(answer.status),
                                               request.version());
    set_headers(response, answer.policy);
    response.set(http::field::content_type, answer.events ? "text/event-stream" : answer.type);
    if (answer.status == 405) response.set(http::field::allow, "GET, HEAD");
    response.keep_alive(request.keep_alive());
    response.content_length(answer.body.size());
    if (!is_head) response.body() = std::move(answer.body);
    http::response_serializer<http::string_body> serializer(response);
    co_await http::async_write(stream, serializer, use_awaitable);
    co_return !response.need_eof();
  }

  asio::awaitable<void> send_events(beast::tcp_stream& stream,
                                    const std::function<std::string()>& updates, unsigned version) {
    const bool in_chunks = version == 11;
    http::response<http::empty_body> response(http::status::ok, version);
    set_headers(response);
    response.set(http::field::content_type, "text/event-stream");
    response.keep_alive(false);
    response.chunked(in_chunks);
    http::response_serializer<http::empty_body> serializer(response);
    co_await http::async_write_header(stream, serializer, use_awaitable);
    Timer timer(context_);
    const Listed listed(streams_, timer);
    std::string text = "retry: 1000\n\n";
    for (auto wrote = Clock::now();;) {
      const std::uint64_t seen = update_count_;
      text += updates();
      if (text.empty() && seconds_since(wrote) >= kSecondsBetweenComments)
        text = ": still here\n\n";
      if (!text.empty()) {
        stream.expires_after(kPatience);
        if (in_chunks) {
          co_await asio::async_write(stream, http::make_chunk(asio::buffer(text)), use_awaitable);
        } else {
          co_await asio::async_write(stream, asio::buffer(text), use_awaitable);
        }
        text.clear();
        wrote = Clock::now();
        stream.expires_never();
      }
      if (seen != update_count_) continue;  // there were updates during the write
      timer.expires_after(kCheckInterval);
      error_code ignored;
      co_await timer.async_wait(asio::redirect_error(use_awaitable, ignored));
      if (is_closed(stream)) co_return;
    }
  }

  /// Registers a stream's timer, so that updates wake it.
  class Listed {
   public:
    Listed(std::set<Timer*>& all, Timer& timer) : all_(all), timer_(timer) { all_.insert(&timer); }
    ~Listed() { all_.erase(&timer_); }
    Listed(const Listed&) = delete;
    Listed& operator=(const Listed&) = delete;

   private:
    std::set<Timer*>& all_;
    Timer& timer_;
  };

  std::function<HttpAnswer(const HttpRequest&)> answer_;
  std::set<Timer*> streams_;  // outlives the coroutines that the context destroys
  int connections_ = 0;
  std::uint64_t update_count_ = 1;
  std::exception_ptr problem_;
  asio::io_context context_{1};
  tcp::acceptor acceptor_;
  Timer ticks_;
  asio::signal_set signals_;
};

HttpServer::HttpServer(std::uint16_t port, std::function<HttpAnswer(const HttpRequest&)> answer)
    : engine_(std::make_unique<Engine>(std::move(answer))) {
  engine_->listen(port);
}

HttpServer::~HttpServer() = default;

std::uint16_t HttpServer::port() const { return engine_->port(); }

void HttpServer::run(double interval, const std::function<bool()>& tick) {
  engine_->run(interval, tick);
}

void HttpServer::stop() { engine_->stop(); }

}  // namespace hybrid_trainer
