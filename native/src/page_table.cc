#include "page_table.h"

#include <algorithm>
#include <utility>

#include "error.h"

namespace weft {

namespace {
using Long = long long;  // for messages
}

PageTable::PageTable(int64_t page_size, int64_t n_pages) : page_size_(page_size) {
  holders_.resize(static_cast<size_t>(n_pages));
  clear();
}

void PageTable::clear() {
  sequences_.clear();
  std::fill(holders_.begin(), holders_.end(), 0);
  free_.resize(holders_.size());
  for (size_t i = 0; i < free_.size(); ++i) free_[i] = static_cast<int32_t>(free_.size() - 1 - i);
}

int32_t PageTable::take() {
  int32_t page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

void PageTable::release(int32_t page) {
  if (--holders_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

void PageTable::truncate(Sequence* sequence, int64_t n_pages) {
  while (static_cast<int64_t>(sequence->pages.size()) > n_pages) {
    release(sequence->pages.back());
    sequence->pages.pop_back();
  }
}

Sequence& PageTable::at(int64_t id) {
  auto found = sequences_.find(id);
  if (found == sequences_.end()) {
    raise_error("ValueError", "the cache has no sequence %lld; add it first with kv_state_add_sequence", Long(id));
  }
  return found->second;
}

void PageTable::add(int64_t id) {
  if (!sequences_.try_emplace(id).second) {
    raise_error("ValueError", "the cache has a sequence %lld already; remove it first", Long(id));
  }
}

void PageTable::remove(int64_t id) {
  truncate(&at(id), 0);
  sequences_.erase(id);
}

void PageTable::fork(int64_t parent, int64_t child, int64_t tokens) {
  const Sequence& from = at(parent);
  if (tokens == -1) tokens = from.length;
  if (tokens < 0 || tokens > from.length) {
    raise_error("ValueError", "cannot fork sequence %lld at token %lld: expected 0 to %lld, or -1 for its end",
                Long(parent), Long(tokens), Long(from.length));
  }
  if (!from.parents.empty()) {
    raise_error("ValueError", "sequence %lld has a token tree; commit its accepted nodes before forking", Long(parent));
  }
  add(child);
  Sequence& to = at(child);
  to.length = tokens;
  if (tokens > from.sink) to.sink = from.sink, to.offset = from.offset;
  to.pages.assign(from.pages.begin(), from.pages.begin() + pages_for(to.slots()));
  for (int32_t page : to.pages) ++holders_[static_cast<size_t>(page)];
}

void PageTable::pop(int64_t id, int64_t tokens) {
  Sequence& sequence = at(id);
  if (tokens < 0 || tokens > sequence.length) {
    raise_error("ValueError", "cannot take %lld tokens off sequence %lld, which has %lld", Long(tokens), Long(id),
                Long(sequence.length));
  }
  sequence.length -= tokens;
  if (sequence.length <= sequence.sink) sequence.sink = sequence.offset = 0;
  truncate(&sequence, pages_for(sequence.slots()));
  size_t nodes = sequence.parents.size() - std::min(sequence.parents.size(), static_cast<size_t>(tokens));
  sequence.parents.resize(nodes);
  sequence.depths.resize(nodes);
}

void PageTable::enable_window(int64_t id, int64_t window, int64_t sink) {
  Sequence& sequence = at(id);
  if (sink < 0 || sink >= window) {
    raise_error("ValueError", "a window of %lld tokens cannot keep the first %lld: expected 0 <= sink < window",
                Long(window), Long(sink));
  }
  if (sequence.window != 0) raise_error("ValueError", "sequence %lld has a sliding window already", Long(id));
  if (sequence.offset != 0 && sink > sequence.sink) {
    raise_error("ValueError", "sequence %lld has kept its first %lld tokens only, not %lld", Long(id),
                Long(sequence.sink), Long(sink));
  }
  sequence.window = window;
  sequence.window_sink = sink;
}

void PageTable::append(const std::vector<Sequence*>& sequences, const std::vector<int64_t>& tokens,
                       const CopyPage& copy) {
  std::map<int32_t, int32_t> holders;  // of last pages that are not full, as the sequences before leave them
  std::vector<bool> copies(sequences.size());
  int64_t needed = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& s = *sequences[i];
    if (s.slots() % page_size_ != 0) {
      int32_t page = s.pages.back();
      int32_t& n = holders.try_emplace(page, holders_[static_cast<size_t>(page)]).first->second;
      copies[i] = n > 1;
      n -= copies[i];
    }
    needed += pages_for(s.slots() + tokens[i]) - static_cast<int64_t>(s.pages.size()) + copies[i];
  }
  if (needed > free_pages()) {
    raise_error("ValueError", "the cache is full: %lld pages of %lld tokens are needed and %lld are free; remove "
                "sequences, or create it for more tokens", Long(needed), Long(page_size_), Long(free_pages()));
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    Sequence& s = *sequences[i];
    if (copies[i]) {
      int32_t own = take();
      copy(s.pages.back(), own, s.slots() % page_size_);
      release(s.pages.back());
      s.pages.back() = own;
    }
    s.length += tokens[i];
    while (static_cast<int64_t>(s.pages.size()) < pages_for(s.slots())) s.pages.push_back(take());
  }
}

void PageTable::slide(Sequence* sequence) {
  Sequence& s = *sequence;
  if (s.window == 0 || s.length <= s.window) return;
  if (s.offset == 0) s.sink = s.offset = s.window_sink;
  s.offset += s.length - s.window;
  s.length = s.window;
  int64_t kept = pages_for(s.sink), gone = std::max<int64_t>(s.offset / page_size_ - kept, 0);
  auto first = s.pages.begin() + kept;
  for (auto page = first; page != first + gone; ++page) release(*page);
  s.pages.erase(first, first + gone);
  s.offset -= gone * page_size_;
}

int32_t PageTable::place(const Sequence& sequence, int64_t token) const {
  int64_t slot = sequence.slot(token);
  return static_cast<int32_t>(sequence.pages[static_cast<size_t>(slot / page_size_)] * page_size_ + slot % page_size_);
}

int64_t PageTable::tokens() const {
  int64_t out = 0;
  for (const auto& [id, sequence] : sequences_) out += sequence.length;
  return out;
}

}  // namespace weft
