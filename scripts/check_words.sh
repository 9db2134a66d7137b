#!/usr/bin/env bash
# Whether each page is in plain English: sentences of at most 17 words on average, 95 % of them of at most 30, and no line over
# 120 characters outside tables. Without files, measures README.md and docs/, but for RESULTS and CONFIG.
# usage: scripts/check_words.sh [FILE...]
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
case ${1:-} in -h | --help) sed -n '2,4s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;; esac
if [ $# -eq 0 ]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  for page in README.md docs/*.md; do
    case $page in docs/RESULTS.md | docs/CONFIG.md) ;; *) set -- "$@" "$page" ;; esac
  done
fi
for page in "$@"; do [ -f "$page" ] || { echo "error: there is no file \"$page\"" >&2; exit 66; }; done

perl -CSD -Mutf8 -e '
  my ($most_mean, $most_usual, $most_columns) = (17, 30, 120);
  my $failed = 0;
  for my $page (@ARGV) {
    open my $file, "<", $page or die "error: $page: $!\n";
    my (@words, @long, @wide);
    my ($paragraph, $first, $in_code) = ("", 0, 0);
    my $end_paragraph = sub {
      $paragraph =~ s/\]\([^)]*\)/]/g;  # where a link leads is no word
      for my $sentence (split /(?<=[.!?])\s+/, $paragraph) {
        my $count = () = $sentence =~ /[A-Za-z0-9`]\S*/g;
        next if $count <= 2;
        push @words, $count;
        push @long, "$page:$first: $count words: " . substr($sentence, 0, 60) . "…" if $count > $most_usual;
      }
      $paragraph = "";
    };
    while (my $line = <$file>) {
      chomp $line;
      if ($line =~ /^```/) { $in_code = !$in_code; $end_paragraph->(); next; }
      next if $in_code;
      if ($line =~ /^\s*[|#!]/ || $line =~ /^ {4}/ || $line =~ /^\s*$/) { $end_paragraph->(); next; }
      push @wide, "$page:$.: " . length($line) . " characters" if length $line > $most_columns;
      $end_paragraph->() if $line =~ s/^\s*([-*]|\d+\.)\s+//;
      $first = $. if $paragraph eq "";
      $paragraph .= ($paragraph eq "" ? "" : " ") . $line =~ s/^\s+|\s+$//gr;
    }
    $end_paragraph->();
    die "error: $page has no sentences\n" unless @words;
    my ($sum, @sorted) = (0, sort { $a <=> $b } @words);
    $sum += $_ for @words;
    my ($mean, $usual) = ($sum / @words, $sorted[int(.95 * $#sorted)]);
    my $wordy = $mean > $most_mean || $usual > $most_usual;
    printf "%s: %d sentences, mean %.1f words, 95 %% at most %d, %d lines over %d characters\n",
      $page, scalar @words, $mean, $usual, scalar @wide, $most_columns;
    print STDERR "$_\n" for @wide, $wordy ? @long : ();
    $failed ||= $wordy || @wide;
  }
  exit 0 unless $failed;
  print STDERR "error: cut the sentences and lines above: at most $most_mean words on average, $most_usual in 95 %\n";
  exit 1;
' "$@" || exit
