// weft_rpc_server: listens, and serves each client in a process of its own.
//
// The listening process reads nothing that clients send, and opens no file of theirs; a session that crashes ends alone,
// and its folder and place are freed by the listener. `weft_rpc_server READ WRITE` serves one session over two
// descriptors that it was given, as a `PopenSession` starts it.
#include <arpa/inet.h>
#include <dirent.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "greeting.h"
#include "session.h"

namespace weft::rpc {
namespace {

constexpr int kGreetingSeconds = 10, kGraceSeconds = 2;
constexpr int kMaxGreetings = 64;  // connections that have not shown the key yet

struct Options {
  std::string host = "0.0.0.0", key, secret;
  int port = 9090, port_end = 9199, max_sessions = 32;
  double timeout = 0;
  bool silent = false;
  Limits limits;
};

[[noreturn]] void quit(const std::string& message) {
  std::fprintf(stderr, "weft_rpc_server: %s\n", message.c_str());
  std::exit(2);
}

const char kUsage[] =
    "usage: weft_rpc_server [--host A] [--port N] [--port-end N] [--key NAME] [--secret-file FILE] [--timeout SECONDS]\n"
    "                       [--max-sessions N] [--max-message-bytes N] [--max-memory-bytes N] [--silent]\n"
    "       weft_rpc_server READ WRITE     (descriptors of pipes: one session)\n";

std::string secret_of(const char* path) {
  std::FILE* file = std::fopen(path, "rb");
  if (file == nullptr) quit(std::string("cannot read ") + path);
  std::string text;
  for (int c; (c = std::fgetc(file)) != EOF;) text.push_back(static_cast<char>(c));
  std::fclose(file);
  const char* space = " \t\r\n\v\f";
  text.erase(0, std::min(text.find_first_not_of(space), text.size()));
  text.erase(text.find_last_not_of(space) + 1);
  if (text.empty()) quit(std::string(path) + " is empty");
  return text;
}

uint64_t number_of(const std::string& option, const char* text, uint64_t most) {
  char* end = nullptr;
  unsigned long long value = std::strtoull(text, &end, 10);
  if (end == text || *end != 0 || *text == '-' || value > most) {
    quit(option + ": expected a number up to " + std::to_string(most) + ", found \"" + text + "\"");
  }
  return value;
}

Options options_of(int argc, char** argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--help") std::fputs(kUsage, stdout), std::exit(0);
    if (name == "--silent") {
      o.silent = true;
      continue;
    }
    if (i + 1 == argc) quit("\"" + name + "\" is no option with a value\n" + kUsage);
    const char* value = argv[++i];
    if (name == "--host") o.host = value;
    else if (name == "--key") o.key = value;
    else if (name == "--secret-file") o.secret = secret_of(value);
    else if (name == "--port") o.port = static_cast<int>(number_of(name, value, 65535));
    else if (name == "--port-end") o.port_end = static_cast<int>(number_of(name, value, 65536));
    else if (name == "--max-sessions") o.max_sessions = std::max(1, static_cast<int>(number_of(name, value, 1024)));
    else if (name == "--timeout") o.timeout = static_cast<double>(number_of(name, value, 1u << 30));
    else if (name == "--max-message-bytes") o.limits.message_bytes = std::min<uint64_t>(number_of(name, value, UINT64_MAX), SIZE_MAX / 4);
    else if (name == "--max-memory-bytes") o.limits.memory_bytes = number_of(name, value, UINT64_MAX);
    else quit("there is no option \"" + name + "\"\n" + kUsage);
  }
  return o;
}

// ---- folders --------------------------------------------------------------------------------------------------------

std::string make_folder() {
  const char* parent = std::getenv("TMPDIR");
  std::string path = std::string(parent != nullptr && *parent == '/' ? parent : "/tmp") + "/weft-rpc-XXXXXX";
  if (mkdtemp(&path[0]) == nullptr) quit("cannot make a folder for a session: " + path);
  return path;
}

void remove_folder(const std::string& path) {
  if (DIR* folder = opendir(path.c_str())) {
    while (dirent* entry = readdir(folder)) {
      std::string name = entry->d_name, inside = path + "/" + name;
      if (name == "." || name == "..") continue;
      struct stat info;
      if (lstat(inside.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) remove_folder(inside);
      else unlink(inside.c_str());
    }
    closedir(folder);
  }
  rmdir(path.c_str());
}

// ---- places: how many sessions there are, which all processes see ---------------------------------------------------

struct Place {
  std::atomic<int> serving;
};
std::atomic<int>* sessions_now = nullptr;
Place* places = nullptr;
int my_place = 0, most_sessions = 0;

bool admit() {  // a session that ends in time makes room
  for (int waited_ms = 0; waited_ms < kGreetingSeconds * 1000; waited_ms += 20) {
    int n = sessions_now->load();
    while (n < most_sessions) {
      if (!sessions_now->compare_exchange_weak(n, n + 1)) continue;
      places[my_place].serving = 1;
      return true;
    }
    poll(nullptr, 0, 20);
  }
  return false;
}

// ---- the process of a client ----------------------------------------------------------------------------------------

int client = -1;
std::string expiry;

void expire(int) {  // only calls that a signal handler may make
  if (!expiry.empty()) {
    ssize_t sent = write(client, expiry.data(), expiry.size());
    static_cast<void>(sent);
    shutdown(client, SHUT_WR);
    pollfd waiting{client, POLLIN, 0};
    poll(&waiting, 1, 50);  // what the client still sends is read by nobody, so that it finds the message first
  }
  _exit(1);
}

void expire_in(double seconds) {
  itimerval timer{};
  timer.it_value.tv_sec = static_cast<time_t>(std::min(seconds, 1e9));
  timer.it_value.tv_usec = static_cast<suseconds_t>((std::min(seconds, 1e9) - static_cast<double>(timer.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_REAL, &timer, nullptr);
}

void keep_alive(int socket) {
  int on = 1, idle = 30, interval = 10, count = 4;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
}

int serve_client(int socket, const Options& o, const std::string& folder) {
  client = socket;
  keep_alive(socket);
  signal(SIGALRM, expire);
  expire_in(kGreetingSeconds + kGraceSeconds + (sessions_now->load() >= most_sessions ? kGreetingSeconds : 0));
  DescriptorConnection link(socket, socket);
  Greeted greeted;
  try {
    greeted = greet(&link, o.key, o.secret, admit);
  } catch (const Closed&) {
  }
  if (!greeted.accepted) return 1;
  double seconds = greeted.timeout_seconds;
  if (o.timeout != 0) seconds = seconds == 0 ? o.timeout : std::min(seconds, o.timeout);
  if (seconds != 0) {
    char text[128];
    std::snprintf(text, sizeof text, "RPCSessionTimeoutError: Your %gs session has expired, try a longer session_timeout", seconds);
    expiry = exception_packet(text);
  }
  expire_in(seconds);
  if (chdir(folder.c_str()) != 0) return 1;
  Session(&link, folder, o.limits).run();
  return 0;
}

// ---- the listening process ------------------------------------------------------------------------------------------

volatile sig_atomic_t ending = 0;

int listen_at(const Options& o, std::string* host, int* port) {
  for (int candidate = o.port; candidate < std::max(o.port_end, o.port + 1); ++candidate) {
    addrinfo hints{}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
    if (getaddrinfo(o.host.c_str(), std::to_string(candidate).c_str(), &hints, &found) != 0) quit("unknown host " + o.host);
    int on = 1, listening = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    bool bound = bind(listening, found->ai_addr, found->ai_addrlen) == 0 && listen(listening, 64) == 0;
    int why = errno;
    freeaddrinfo(found);
    if (bound) {
      sockaddr_storage name{};
      socklen_t size = sizeof name;
      getsockname(listening, reinterpret_cast<sockaddr*>(&name), &size);
      auto* v6 = name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name) : nullptr;
      auto* v4 = reinterpret_cast<sockaddr_in*>(&name);
      char text[INET6_ADDRSTRLEN] = "";
      inet_ntop(name.ss_family, v6 != nullptr ? static_cast<void*>(&v6->sin6_addr) : &v4->sin_addr, text, sizeof text);
      *host = text;
      *port = ntohs(v6 != nullptr ? v6->sin6_port : v4->sin_port);
      return listening;
    }
    close(listening);
    if (why != EADDRINUSE) quit(o.host + ": " + std::strerror(why));
  }
  quit("no port of " + o.host + " is free");
}

// Listens for clients of this machine, too, which need no TCP (weft/rpc/base.py); -1 where the system cannot.
int listen_here(const std::string& host, int port) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::string text = "weft-rpc-" + host + ":" + std::to_string(port);
  if (text.size() + 1 > sizeof name.sun_path) return -1;
  std::memcpy(name.sun_path + 1, text.data(), text.size());
  auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  int listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(listening, reinterpret_cast<sockaddr*>(&name), size) == 0 && listen(listening, 64) == 0) return listening;
  close(listening);
  return -1;
}

struct Child {
  int place;
  std::string folder;
};

void reap(std::map<pid_t, Child>* children, bool wait_for_all) {
  while (!children->empty()) {
    int status = 0;
    pid_t pid = waitpid(-1, &status, wait_for_all ? 0 : WNOHANG);
    if (pid < 0 && errno == EINTR) continue;
    if (pid <= 0) return;
    auto child = children->find(pid);
    if (child == children->end()) continue;
    if (WIFSIGNALED(status) && !wait_for_all) {
      std::fprintf(stderr, "weft_rpc_server: a session crashed, by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
    }
    if (places[child->second.place].serving.exchange(0) == 1) --*sessions_now;
    remove_folder(child->second.folder);
    children->erase(child);
  }
}

int free_place(const std::map<pid_t, Child>& children, int count) {
  for (int i = 0; i < count; ++i) {
    bool taken = std::any_of(children.begin(), children.end(), [i](const auto& c) { return c.second.place == i; });
    if (!taken) return i;
  }
  return -1;
}

void serve(const Options& o) {
  std::string host;
  int port = 0, listening = listen_at(o, &host, &port), here = listen_here(host, port);
  int count = o.max_sessions + kMaxGreetings;
  size_t bytes = sizeof(std::atomic<int>) * (static_cast<size_t>(count) + 1);
  void* shared = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) quit("no memory");
  sessions_now = static_cast<std::atomic<int>*>(shared);
  places = reinterpret_cast<Place*>(sessions_now + 1);
  most_sessions = o.max_sessions;
  std::printf("listening at %s:%d\n", o.host.c_str(), port);
  std::fflush(stdout);
  pid_t self = getpid();
  std::map<pid_t, Child> children;
  while (ending == 0) {
    reap(&children, false);
    int place = free_place(children, count);
    pollfd waiting[] = {{listening, POLLIN, 0}, {here, POLLIN, 0}};
    if (poll(waiting, place < 0 ? 0 : 2, 200) <= 0) continue;
    int socket = accept4(waiting[1].revents != 0 ? here : listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    std::string folder = make_folder();
    pid_t pid = fork();
    if (pid == 0) {
      close(listening), close(here);
      my_place = place;
      signal(SIGTERM, SIG_DFL), signal(SIGINT, SIG_IGN);
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != self) _exit(1);
      _exit(serve_client(socket, o, folder));
    }
    close(socket);
    if (pid > 0) children[pid] = {place, folder};
    else remove_folder(folder);
  }
  for (const auto& [pid, child] : children) kill(pid, SIGKILL);
  reap(&children, true);
}

}  // namespace
}  // namespace weft::rpc

int main(int argc, char** argv) {
  using namespace weft::rpc;
  signal(SIGPIPE, SIG_IGN);
  if (argc == 3 && argv[1][0] != '-') {
    int reads = static_cast<int>(number_of("READ", argv[1], INT_MAX)), writes = static_cast<int>(number_of("WRITE", argv[2], INT_MAX));
    DescriptorConnection link(reads, writes);
    std::string folder = make_folder();
    if (chdir(folder.c_str()) == 0) Session(&link, folder, Limits()).run();
    remove_folder(folder);
    return 0;
  }
  Options options = options_of(argc, argv);
  for (int number : {SIGTERM, SIGINT}) signal(number, [](int) { ending = 1; });
  serve(options);
  return 0;
}
