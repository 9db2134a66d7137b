#!/usr/bin/env bash
# Checks that each commit's message follows CONTRIBUTING: an imperative subject of at most 72 characters without a final
# period, a blank line, and a body. Skips merges.
# usage: scripts/check_commits.sh [RANGE]   default: since the last tag; without a tag those not in main, or HEAD
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
case ${1:-} in -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;; esac
[ $# -le 1 ] || { echo "error: one range at most, got: $*" >&2; exit 64; }
cd "$(dirname "${BASH_SOURCE[0]}")/.."
git rev-parse --git-dir >/dev/null 2>&1 || { echo "error: $PWD is not a git clone, so it has no commits" >&2; exit 66; }

# Prints the commits to check, as arguments of git rev-list. A shallow clone has fewer commits, or only HEAD.
default_range() {
  local base
  if base=$(git describe --tags --abbrev=0 2>/dev/null); then echo "$base..HEAD" && return; fi
  for branch in origin/main main; do
    base=$(git merge-base "$branch" HEAD 2>/dev/null) || continue
    if [ "$base" != "$(git rev-parse HEAD)" ]; then echo "$base..HEAD" && return; fi
  done
  echo "HEAD --max-count=1"
}
range=${1:-$(default_range)}
commits=$(git rev-list --no-merges $range) || { echo "error: this clone does not have the range \"$range\"" >&2; exit 66; }

not_imperative='^(The|A|An|No|All|Each|Every|This|These|That|New|One|Two|More|Some|Both|Of|In|For|With|By|On|From|To|As|If|When|Where|What|WIP|Fix(up|es|ed|ing))$'
past_or_gerund='(ed|ing)$'
verbs_that_look_so='^(Embed|Feed|Need|Seed|Speed|Shed|Exceed|Proceed|Succeed|Bring|String|Ring|Ping|Swing)$'
third_person='[^s]s$'
verbs_with_s='^(Focus|Canvas|Bias|Alias)$'
failed=0 checked=0
for commit in $commits; do
  # In a shallow clone, only the commit object shows that it is a merge.
  [ "$(git cat-file commit "$commit" | sed '/^$/q' | grep -c '^parent ' || true)" -le 1 ] || continue
  mapfile -t lines < <(git log -1 --format=%B "$commit")
  subject=${lines[0]} word=${lines[0]%%[ ,:]*} faults=()
  [ ${#subject} -le 72 ] || faults+=("subject has ${#subject} characters, at most 72 are allowed")
  [[ $subject != *. ]] || faults+=("subject ends with a point")
  [[ $word =~ ^[A-Z] ]] || faults+=("subject does not begin with a capital letter")
  if [[ $word =~ $not_imperative ]] || [[ $subject =~ ^[A-Za-z]+(\([a-z]+\))?: ]] ||
    { [[ $word =~ $past_or_gerund ]] && [[ ! $word =~ $verbs_that_look_so ]]; } ||
    { [[ $word =~ $third_person ]] && [[ ! $word =~ $verbs_with_s ]]; }; then
    faults+=("subject does not begin with an imperative such as Add, Fix or Read, but with \"$word\"")
  fi
  if [ ${#lines[@]} -lt 3 ]; then
    faults+=("message has no body that says why and how it was checked")
  elif [ -n "${lines[1]}" ]; then
    faults+=("second line is not blank")
  fi
  checked=$((checked + 1))
  for fault in "${faults[@]}"; do printf '%s %s\n    %s\n' "${commit:0:10}" "$subject" "$fault" >&2; done
  [ ${#faults[@]} -eq 0 ] || failed=$((failed + 1))
done
[ $failed -eq 0 ] || { echo "error: $failed of $checked messages break docs/CONTRIBUTING.md#commits; reword them with: git rebase --interactive" >&2; exit 1; }
echo "commit messages: $checked checked ($range)"
