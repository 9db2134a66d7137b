#!/usr/bin/env bash
# Makes a corpus of spoken sentences with Debian's espeak-ng and flite: clips of one to four seconds with their texts.
. "$(dirname "${BASH_SOURCE[0]}")/strict.sh"

usage() {
  cat <<'TEXT'
usage: scripts/make_speech.sh FOLDER [--training 2000] [--held-out 200] [--seed 1]

  FOLDER          gets clips/, training.jsonl and held_out.jsonl; it must not exist
  --training N    number of clips to train on
  --held-out N    number of clips whose sentences no training clip has
  --seed N        of the sentences, voices, speeds and pitches

Sentences are commands, colors, places and numbers of some 60 words, spoken by 11 voices. espeak-ng writes 22,050 samples
a second, flite 16,000. If a program is missing, the script takes it from Debian's packages, without installing them.
TEXT
}

folder="" training=2000 held_out=200 seed=1
number() {
  [[ ${2:-} =~ ^[0-9]{1,6}$ ]] || { echo "error: make_speech.sh: $1: got \"${2:-}\", want a number up to 999999" >&2; exit 64; }
  echo "$2"
}
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --training) training=$(number "$@") || exit; shift 2 ;;
    --held-out) held_out=$(number "$@") || exit; shift 2 ;;
    --seed) seed=$(number "$@") || exit; shift 2 ;;
    -*) echo "error: make_speech.sh: there is no option \"$1\"; see --help" >&2; exit 64 ;;
    *)
      [ -z "$folder" ] || { echo "error: make_speech.sh: got a second folder, \"$1\"" >&2; exit 64; }
      folder=$1
      shift
      ;;
  esac
done
[ -n "$folder" ] || { usage >&2; exit 64; }
[ ! -e "$folder" ] || { echo "error: make_speech.sh: $folder exists already; give a new folder" >&2; exit 73; }

unfinished=$folder.unfinished
packages=$(mktemp -d)
trap 'rm -rf "$packages" "$unfinished"' EXIT
if ! command -v espeak-ng >/dev/null || ! command -v flite >/dev/null; then
  if ! (cd "$packages" && apt-get download espeak-ng espeak-ng-data libespeak-ng1 libpcaudio0 libsonic0 libpulse0 \
      flite libflite1 libasound2 && for package in ./*.deb; do dpkg -x "$package" .; done) >"$packages/log" 2>&1; then
    cat "$packages/log" >&2
    echo "error: make_speech.sh: espeak-ng or flite is missing and cannot be had; as root: apt-get install espeak-ng flite" >&2
    exit 69
  fi
  libraries=$packages/usr/lib/$(uname -m)-linux-gnu
  export PATH=$packages/usr/bin:$PATH LD_LIBRARY_PATH=$libraries ESPEAK_DATA_PATH=$libraries/espeak-ng-data
fi
# Some audio output libraries may be missing, but the programs must run without them.
if ! { espeak-ng -w "$packages/try.wav" word && flite -voice slt -t word -o "$packages/try.wav"; } 2>"$packages/log"; then
  cat "$packages/log" >&2
  echo "error: make_speech.sh: espeak-ng or flite does not run, as it says above; as root: apt-get install espeak-ng flite" >&2
  exit 69
fi

mkdir -p "$unfinished/clips"
perl - "$unfinished" "$training" "$held_out" "$seed" "$(nproc)" <<'PERL'
use strict;
use warnings;
my ($folder, $training, $held_out, $seed, $processes) = @ARGV;
srand($seed);
my %words = (
  VERB => [qw(open close take move find show bring clean)],
  COLOR => [qw(red blue green yellow black white orange brown)],
  OBJECT => [qw(box ball lamp door window table chair book cup key)],
  NUMBER => [qw(one two three four five six seven eight nine ten)],
  SIDE => [qw(left right up down north south)],
  PLACE => [qw(kitchen garden street river)],
);
my @sentences = (
  "VERB the COLOR OBJECT", "VERB the COLOR OBJECT", "please VERB the OBJECT in the PLACE", "the OBJECT is COLOR and COLOR",
  "turn SIDE and go SIDE", "go SIDE NUMBER steps", "bring the OBJECT to the PLACE", "NUMBER NUMBER NUMBER",
  "NUMBER NUMBER NUMBER NUMBER", "COLOR COLOR NUMBER", "take the COLOR OBJECT to the PLACE now",
);
my @voices = (
  (map { ["espeak-ng", $_] } qw(en-us en-us+f2 en-us+m3 en-gb en-gb+f3 en-gb-x-rp+m7 en-gb-scotland)),
  (map { ["flite", $_] } qw(slt rms awb kal16)),
);
sub one_of { $_[int rand @_] }
# Holds out one sentence of eight, chosen by a hash of its letters.
sub is_held_out {
  my $sum = 17;
  $sum = ($sum * 31 + ord) % 1000003 for split //, $_[0];
  return $sum % 8 == 0;
}
sub sentence {
  my ($wants_held_out) = @_;
  for (;;) {
    my $text = one_of(@sentences);
    $text =~ s/([A-Z]+)/one_of(@{$words{$1}})/ge;
    return $text if is_held_out($text) == $wants_held_out;
  }
}
my @clips;
for my $set ([training => $training, 0], [held_out => $held_out, 1]) {
  my ($name, $count, $wants_held_out) = @$set;
  open my $rows, ">", "$folder/$name.jsonl" or die "error: $folder/$name.jsonl: $!\n";
  for my $i (1 .. $count) {
    my $text = sentence($wants_held_out);
    my $file = sprintf "clips/%s_%05d.wav", $name, $i;
    my ($program, $voice) = @{one_of(@voices)};
    my ($speed, $pitch) = (0.85 + 0.35 * rand, rand);
    print $rows qq({"audio": "$file", "text": "$text", "language": "en"}\n);
    push @clips, $program eq "flite"
      ? ["flite", "-voice", $voice, "--setf", sprintf("duration_stretch=%.3f", 1 / $speed), "-t", $text, "-o", "$folder/$file"]
      : ["espeak-ng", "-v", $voice, "-s", int(150 * $speed), "-p", int(35 + 30 * $pitch), "-w", "$folder/$file", $text];
  }
  close $rows or die "error: $folder/$name.jsonl: $!\n";
}
my @children;
for my $part (0 .. $processes - 1) {
  my $child = fork // die "error: fork: $!\n";
  push @children, $child and next if $child;
  for (my $i = $part; $i < @clips; $i += $processes) {
    system(@{$clips[$i]}) == 0 or die "error: make_speech.sh: @{$clips[$i]}: failed\n";
  }
  exit 0;
}
my $failed = 0;
for (@children) { waitpid $_, 0; $failed ||= $?; }
exit($failed ? 1 : 0);
PERL
mv "$unfinished" "$folder"
printf '%s\n' "$folder/training.jsonl" "$folder/held_out.jsonl"
