#!/usr/bin/env bash
# Whether comments, messages and pages stay in plain English: counts words of hard prose, and docstrings that begin with a
# preposition or pronoun. Each has a limit below, today's number of places, which may only fall. RESULTS and its archive are left out.
# Lines of pages have at most 120 characters outside tables. The length of sentences is reported and has no limit.
# usage: scripts/check_words.sh [--places N|--tighten]
#   --places N  also prints the first N places of each word
#   --tighten   lowers the limits to the numbers of today
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"
places=0 tighten=""
case ${1:-} in
  "") ;;
  --places) places=${2:-5} ;;
  --tighten) tighten=1 ;;
  -h | --help) sed -n '2,7s/^# //p' "${BASH_SOURCE[0]}" && exit 0 ;;
  *) echo "error: unknown option $1; see --help" >&2 && exit 64 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# name | pattern | most places | goal per 10,000 words: at most twice the highest figure of MLX, CTranslate2, DuckDB, RMM and abseil
limits='
where | where | 12 | 14
what | what | 27 | 6
whoever, whatever | whoever|whatever | 6 | 0.6
beside | beside | 2 | 0.5
behind | behind | 1 | 0.6
tell, told | tells?|told | 1 | 3
those of, that of | those of|that of | 10 | 1.4
lie, lies, lay | lies?|lay | 0 | 0.5
anew | anew | 0 | 0.2
of its own, of their own | of (?:its|their|a) own | 6 | 0.5
heed, bear, mishap, dream, mend | heeds?|bears?|mishaps?|dreamt|dreams?|mends?|mended | 1 | 0.2
apart | apart | 5 | 0.3
docstrings, % | | 7 | 5
'
files=$(git ls-files -- '*.h' '*.cuh' '*.cpp' '*.cu' '*.md' | grep -Ev '^(tests|scripts)/|RESULTS')
new=$(LIMITS=$limits PLACES=$places perl -CSD -Mutf8 -e '
  my (%hits, @failures, $words, $docstrings);
  my (@names, %pattern, %limit, %goal);
  for (grep { /\S/ } split /\n/, $ENV{LIMITS}) {
    my ($name, $rest) = /^(.*?) \| (.*)$/;
    my ($pattern, $limit, $goal) = $rest =~ /^(.*?)\s*\|? ?([\d.]+) \| ([\d.]+)$/;
    push @names, $name;
    ($pattern{$name}, $limit{$name}, $goal{$name}) = (qr/\b(?:$pattern)\b/i, $limit, $goal);
  }
  my $docstring_name = $names[-1];
  my @word_names = @names[0 .. $#names - 1];
  my $opening = qr/^(?:Of|In|By|With|What|Whether|Where|From|For|Its?|Those|These|They|That|Who|As|To|At|On)\b/;

  my $count = sub {
    my ($place, $text) = @_;
    $words += () = $text =~ /[A-Za-z]+/g;
    for my $name (@word_names) {
      push @{$hits{$name}}, ($place->() . ": " . $text) x (() = $text =~ /$pattern{$name}/g);
    }
  };
  my @lengths;
  for my $file (@ARGV) {
    open my $in, "<", $file or die "error: $file: $!\n";
    my $text = do { local $/; <$in> };
    if ($file =~ /\.md$/) {
      my ($number, $in_code, $paragraph, @own) = (0, 0, "");
      my $end = sub {
        $paragraph =~ s/\]\([^)]*\)/]/g;
        for (split /(?<=[.!?])\s+/, $paragraph) { my $n = () = /[A-Za-z0-9`]\S*/g; push @own, $n if $n > 2; }
        $paragraph = "";
      };
      for my $line (split /\n/, $text) {
        ++$number;
        $count->(sub { "$file:$number" }, $line);
        if ($line =~ /^\s*```/) { $in_code = !$in_code; $end->(); next; }
        next if $in_code;
        if ($line =~ /^\s*(?:[|#!<]|$)|^ {4}/) { $end->(); next; }
        push @failures, "$file:$number: " . length($line) . " characters, at most 120 are allowed" if length $line > 120 && $file =~ m{^(README|docs/(?!CONFIG))};
        $end->() if $line =~ s/^\s*(?:[-*]|\d+\.)\s+//;
        $paragraph .= " $line";
      }
      $end->();
      push @lengths, @own;
      next;
    }
    my ($seen, $number) = (0, 1);
    my $at = sub { $number += substr($text, $seen, $-[0] - $seen) =~ tr/\n//; $seen = $-[0]; my $n = $number; sub { "$file:$n" } };
    # Comments and messages; a message is a literal of 25 characters or more.
    while ($text =~ /\/\/+[!<]*([^\n]*)|\/\*(.*?)\*\/|R"(\w*)\((.*?)\)\g3"|"((?:[^"\\\n]|\\.)*)"|\x27(?:[^\x27\\\n]|\\.)\x27/gs) {
      my $part = $1 // $2 // $4 // $5;
      next unless defined $part && (!defined $5 || length $5 >= 25);
      $count->($at->(), $part);
    }
    next unless $file =~ /\.(?:h|cuh)$/;
    while ($text =~ /(?:^|\n)(?![ \t]*\/\/\/)[^\n]*\n[ \t]*\/\/\/ +(\S[^\n]*)/g) {
      my $first = $1;
      ++$docstrings;
      pos($text) = $-[1];
      next unless $first =~ $opening;
      push @{$hits{$docstring_name}}, "$file: $first";
    }
  }
  for my $name (@names) {
    my $found = @{$hits{$name} // []};
    my $figure = $name eq $docstring_name ? 100 * $found / $docstrings : 1e4 * $found / $words;
    printf STDERR "%-34s %5d places, at most %5d   %5.1f, goal %4.1f\n", $name, $found, $limit{$name}, $figure, $goal{$name};
    print STDERR "    " . substr($_, 0, 150) . "\n" for grep { defined } @{$hits{$name}}[0 .. $ENV{PLACES} - 1];
    push @failures, "$name: $found places, at most $limit{$name} are allowed; rewrite the sentences that the change adds (--places 20 shows some)" if $found > $limit{$name};
    print "$name|$found\n" if $found < $limit{$name};
  }
  my $sum = 0;
  $sum += $_ for @lengths;
  @lengths = sort { $a <=> $b } @lengths;
  printf STDERR "%d words; sentences of pages: %d, mean %.1f words, 95 %% at most %d\n", $words, scalar @lengths, $sum / @lengths, $lengths[.95 * $#lengths];
  print STDERR "error: $_\n" for @failures;
  exit @failures > 0;
' $files) || exit 1
if [ -n "$tighten" ]; then
  while IFS='|' read -r name figure; do
    [ -z "$name" ] || sed -i -E "/^${name} \|/s/\| [0-9.]+ \| ([0-9.]+)\$/| $figure | \1/" scripts/check_words.sh
  done <<<"$new"
fi
